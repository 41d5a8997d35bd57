"""Mixture density network: the log of a sum of densities that underflow to 0.
Source: keras-team/keras#2586, #1061."""
import sys
import math
import torch
from torch import nn

CURED = "--cured" in sys.argv
torch.manual_seed(0)


class MDN(nn.Module):
    def __init__(self, k=3):
        super().__init__()
        self.body = nn.Sequential(nn.Linear(1, 20), nn.Tanh())
        self.pi, self.mu, self.sigma = nn.Linear(20, k), nn.Linear(20, k), nn.Linear(20, k)

    def forward(self, x):
        h = self.body(x)
        return self.pi(h).softmax(-1), self.mu(h), torch.exp(self.sigma(h))


def nll(pi, mu, sigma, y):
    if CURED:
        comp = torch.log(pi) - 0.5 * ((y - mu) / sigma) ** 2 - torch.log(sigma) - 0.5 * math.log(2 * math.pi)
        return -torch.logsumexp(comp, 1).mean()
    dens = torch.exp(-0.5 * ((y - mu) / sigma) ** 2) / (sigma * math.sqrt(2 * math.pi))
    return -torch.log((pi * dens).sum(1)).mean()  # FAULT


net = MDN()
opt = torch.optim.Adam(net.parameters(), lr=1e-2)
for step in range(8):
    x = torch.rand(32, 1)
    y = torch.sin(6 * x)
    if step == 5:
        y[7] = 300.0
    loss = nll(*net(x), y)
    opt.zero_grad()
    loss.backward()
    opt.step()
    print(step, loss.item())
