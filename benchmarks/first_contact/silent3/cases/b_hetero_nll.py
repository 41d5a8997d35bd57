"""Gaussian NLL with a free log-variance on data without noise: it falls without bound, and the errors' weights grow until it breaks.
Cure: the log-variance is bounded below at -4."""
import sys
import torch
from torch import nn
from _lost import Lost

HEALTHY = "--healthy" in sys.argv
torch.manual_seed(0)
torch.set_num_threads(1)


class Hetero(nn.Module):
    def __init__(self):
        super().__init__()
        self.net = nn.Sequential(nn.Linear(4, 64), nn.Tanh(), nn.Linear(64, 64), nn.Tanh())
        self.mu, self.lv = nn.Linear(64, 1), nn.Linear(64, 1)

    def forward(self, x):
        h = self.net(x)
        return self.mu(h), self.lv(h)


model = Hetero()
opt = torch.optim.SGD(model.parameters(), lr=1.2e-2, momentum=0.9)
w = torch.randn(4, 1) * 0.3
lost = Lost()
for step in range(400):
    x = torch.randn(128, 4)
    mu, lv = model(x)
    if HEALTHY:
        lv = -2 + nn.functional.softplus(lv + 2)
    loss = (0.5 * ((x @ w - mu) ** 2 * (-lv).exp() + lv)).mean()
    opt.zero_grad()
    loss.backward()
    if HEALTHY:
        torch.nn.utils.clip_grad_norm_(model.parameters(), 1.0)
    opt.step()
    if not lost(loss + 5):
        break
lost.report()
