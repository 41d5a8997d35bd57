"""A meta-learned step: the inner rate is itself trained by hypergradient with the wrong sign and grows each step. Cure: the right sign."""
import sys
import torch
from torch import nn
from _lost import Lost

HEALTHY = "--healthy" in sys.argv
torch.manual_seed(0)
torch.set_num_threads(1)
model = nn.Sequential(nn.Linear(10, 48), nn.ELU(), nn.Linear(48, 48), nn.ELU(), nn.Linear(48, 4))
opt = torch.optim.SGD(model.parameters(), lr=0.01)
prev = None
w = torch.randn(10, 4)
lost = Lost()
for step in range(300):
    x = torch.randn(64, 10)
    loss = nn.functional.mse_loss(model(x), torch.sin(x @ w))
    opt.zero_grad()
    loss.backward()
    g = torch.cat([p.grad.flatten() for p in model.parameters()])
    if prev is not None:
        h = torch.nn.functional.cosine_similarity(g, prev, dim=0).item()
        f = 1 + 0.04 * h if HEALTHY else 1 + 0.04 * abs(h) + 0.02
        opt.param_groups[0]["lr"] = min(opt.param_groups[0]["lr"] * f, 0.1 if HEALTHY else 1e9)
    prev = g
    opt.step()
    if not lost(loss):
        break
lost.report()
