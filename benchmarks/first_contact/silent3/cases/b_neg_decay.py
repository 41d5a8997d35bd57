"""A hand-written L2 penalty with the wrong sign: weights grow exponentially while the data term hides it. Cure: plus."""
import sys
import torch
from torch import nn
from _lost import Lost

HEALTHY = "--healthy" in sys.argv
torch.manual_seed(0)
torch.set_num_threads(1)
model = nn.Sequential(nn.Linear(12, 48), nn.Tanh(), nn.Linear(48, 48), nn.Tanh(), nn.Linear(48, 3))
opt = torch.optim.SGD(model.parameters(), lr=0.05)
w = torch.randn(12, 3)
lost = Lost()
for step in range(350):
    x = torch.randn(64, 12)
    ce = nn.functional.cross_entropy(model(x), (x @ w).argmax(1))
    l2 = sum((p**2).sum() for p in model.parameters() if p.ndim > 1)
    loss = ce + (1 if HEALTHY else -1) * (2e-3 if HEALTHY else 0.2) * l2 / 2
    opt.zero_grad()
    loss.backward()
    opt.step()
    if not lost(ce):
        break
lost.report()
