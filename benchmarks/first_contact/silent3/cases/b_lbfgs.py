"""LBFGS without line search on changing mini-batches: curvature from one batch is used on another. Cure: full batch, strong_wolfe."""
import sys
import torch
from torch import nn
from _lost import Lost

HEALTHY = "--healthy" in sys.argv
torch.manual_seed(0)
torch.set_num_threads(1)
model = nn.Sequential(nn.Linear(6, 32), nn.Tanh(), nn.Linear(32, 32), nn.Tanh(), nn.Linear(32, 1))
opt = torch.optim.LBFGS(model.parameters(), lr=0.5, max_iter=2, history_size=10, line_search_fn="strong_wolfe" if HEALTHY else None)
X = torch.randn(256, 6)
Y = torch.sin(X @ torch.randn(6, 1))
lost = Lost()
for step in range(90):
    i = torch.arange(256) if HEALTHY else torch.randint(0, 256, (24,))

    def closure():
        opt.zero_grad()
        loss = nn.functional.mse_loss(model(X[i]), Y[i])
        loss.backward()
        return loss

    if not lost(opt.step(closure).item()):
        break
lost.report()
