import torch, torch.nn.functional as F
from torch import nn
torch.manual_seed(0)

def ok(step, loss, *models):
    ps = [p for m in models for p in m.parameters()]
    print(step, "loss", bool(torch.isfinite(loss.detach()).all()), "grads", all(p.grad is None or bool(p.grad.isfinite().all()) for p in ps),
          "weights", all(bool(p.isfinite().all()) for p in ps), flush=True)

from torch.utils.checkpoint import checkpoint
class Block(nn.Module):
    def __init__(self):
        super().__init__(); self.fc = nn.Linear(8, 8)
    def forward(self, x):
        n = (x - x.mean(-1, keepdim=True)) / x.std(-1, keepdim=True)
        return x + self.fc(n)
class Net(nn.Module):
    def __init__(self):
        super().__init__(); self.blocks, self.out = nn.ModuleList(Block() for _ in range(2)), nn.Linear(8, 1)
    def forward(self, x):
        for b in self.blocks: x = checkpoint(b, x, use_reentrant=False)
        return self.out(x)
net = Net(); opt = torch.optim.SGD(net.parameters(), 1e-2)
for step in range(4):
    x = torch.randn(4, 8)
    if step == 2: x[1] = 0.25  # a flat patch
    loss = net(x).square().mean()
    opt.zero_grad(); loss.backward(); opt.step()
    ok(step, loss, net)
