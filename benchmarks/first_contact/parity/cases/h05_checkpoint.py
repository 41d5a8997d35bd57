from tiny import *
# activation checkpointing without reentry, and DDP
from torch.utils.checkpoint import checkpoint
init()
class Net(GPT):
    def forward(self, ids):
        x = self.tok(ids) + self.pos(torch.arange(ids.shape[1]))
        for b in self.blocks:
            x = checkpoint(b, x, use_reentrant=False) if world > 1 else b(x)
        return self.head(self.norm(x))
model = Net(tie=True)
if world > 1:
    model = nn.parallel.DistributedDataParallel(model)
opt = torch.optim.AdamW(model.parameters(), lr=1e-3)
for x, y in batches():
    x, y = mine(x, y)
    ce(model(x), y).backward()
    opt.step(); opt.zero_grad()
