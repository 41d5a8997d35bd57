"""A residual net of 16 blocks without norms: SGD whose rate rises by 2.5 % a step. Cure: it stays."""
import sys
import torch
from torch import nn
from _lost import Lost

HEALTHY = "--healthy" in sys.argv
torch.manual_seed(0)
torch.set_num_threads(1)


class Block(nn.Module):
    def __init__(self, d):
        super().__init__()
        self.a, self.b = nn.Linear(d, d), nn.Linear(d, d)
        nn.init.normal_(self.b.weight, 0, 0.02)

    def forward(self, x):
        return x + self.b(nn.functional.gelu(self.a(x)))


model = nn.Sequential(nn.Linear(8, 32), *[Block(32) for _ in range(16)], nn.Linear(32, 1))
opt = torch.optim.SGD(model.parameters(), lr=1e-3)
lost = Lost()
for step in range(300):
    opt.param_groups[0]["lr"] = 1e-3 if HEALTHY else 1e-3 * 1.025**step
    x = torch.randn(64, 8)
    loss = nn.functional.mse_loss(model(x), torch.sin(2 * x).sum(1, keepdim=True))
    opt.zero_grad()
    loss.backward()
    opt.step()
    if not lost(loss):
        break
lost.report()
