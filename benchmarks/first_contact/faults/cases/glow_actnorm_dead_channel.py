"""Glow: data-dependent initialisation of ActNorm with a channel that is constant in the first batch.
Source: vislearn/FrEIA#121."""
import sys
import torch
from torch import nn

CURED = "--cured" in sys.argv
torch.manual_seed(0)


class ActNorm(nn.Module):
    def __init__(self, n):
        super().__init__()
        self.loc, self.log_scale = nn.Parameter(torch.zeros(n)), nn.Parameter(torch.zeros(n))
        self.ready = False

    def forward(self, x):
        if not self.ready:
            with torch.no_grad():
                std = x.std(0)
                if CURED:
                    std = std + 1e-6
                self.loc.copy_(x.mean(0))
                self.log_scale.copy_(-torch.log(std))  # FAULT
            self.ready = True
        return (x - self.loc) * self.log_scale.exp(), self.log_scale.sum()


class Coupling(nn.Module):
    def __init__(self, n):
        super().__init__()
        self.net = nn.Sequential(nn.Linear(n // 2, 16), nn.ReLU(), nn.Linear(16, n))

    def forward(self, x):
        a, b = x.chunk(2, 1)
        s, t = self.net(a).chunk(2, 1)
        s = torch.tanh(s)
        return torch.cat([b * s.exp() + t, a], 1), s.sum(1)


class Glow(nn.Module):
    def __init__(self, n=6, k=2):
        super().__init__()
        self.steps = nn.ModuleList([m for _ in range(k) for m in (ActNorm(n), Coupling(n))])

    def forward(self, x):
        logdet = 0
        for m in self.steps:
            x, d = m(x)
            logdet = logdet + d
        return (0.5 * x.pow(2).sum(1) - logdet).mean()


flow = Glow()
opt = torch.optim.Adam(flow.parameters(), lr=1e-3)
for step in range(3):
    x = torch.randn(32, 6)
    x[:, 4] = 0.5  # an empty band
    loss = flow(x)
    opt.zero_grad()
    loss.backward()
    opt.step()
    print(step, loss.item())
