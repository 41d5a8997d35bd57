from tiny import *
# https://github.com/mlfoundations/open_clip/issues/573, https://github.com/pytorch/pytorch/issues/7617: reentrant checkpointing of a first
# layer whose input needs no gradient: its weights get none
from torch.utils.checkpoint import checkpoint
class Net(nn.Module):
    def __init__(self):
        super().__init__()
        self.inp, self.l1, self.l2, self.out = nn.Sequential(nn.Linear(16, 32), nn.GELU()), MLP(), MLP(), nn.Linear(32, 8)
    def forward(self, x):
        for l in (self.inp, self.l1, self.l2):
            x = checkpoint(l, x, use_reentrant=True) if B else l(x)
        return self.out(x)
model = Net()
opt = torch.optim.AdamW(model.parameters(), lr=1e-3)
g = torch.Generator().manual_seed(3)
for _ in range(4):
    x, y = torch.randn(16, 16, generator=g), torch.randint(0, 8, (16,), generator=g)
    F.cross_entropy(model(x), y).backward()
    opt.step(); opt.zero_grad()
