"""A monotone quadratic spline layer's inverse pass in a flow; points outside of the interval keep their value by torch.where.
Source: danielward27/flowjax#240, bayesflow-org/bayesflow#721."""
import sys, math
import torch
from torch import nn
import torch.nn.functional as F

torch.set_num_threads(1)
torch.manual_seed(6)
CURED = "--cured" in sys.argv
BOUND = 3.0


class QuadraticInverse(nn.Module):
    """y -> x of y = a x^2 + b x on [0, 1] after scaling, identity outside."""

    def __init__(self, dim, hidden=32):
        super().__init__()
        self.net = nn.Sequential(nn.Linear(dim, hidden), nn.Tanh(), nn.Linear(hidden, dim))

    def forward(self, keep, y):
        inside = y.abs() <= BOUND
        a = torch.tanh(self.net(keep)) * 0.9
        b = 1 - a
        u = (y + BOUND) / (2 * BOUND)
        if CURED:
            u = u.clamp(0, 1)
        disc = b ** 2 + 4 * a * u
        root = torch.sqrt(disc)  # FAULT
        x = 2 * u / (b + root)
        logdet = -torch.log(root)
        x = torch.where(inside, x * 2 * BOUND - BOUND, y)
        return x, torch.where(inside, logdet, torch.zeros_like(y)).sum(-1)


class Flow(nn.Module):
    def __init__(self):
        super().__init__()
        self.layers = nn.ModuleList(QuadraticInverse(1) for _ in range(4))

    def log_prob(self, y):
        total = 0.0
        left, right = y[:, :1], y[:, 1:]
        for layer in self.layers:
            right, ld = layer(left, right)
            total = total + ld
            left, right = right, left
        z = torch.cat([left, right], 1)
        return total - 0.5 * (z ** 2).sum(-1) - math.log(2 * math.pi)


flow = Flow()
opt = torch.optim.Adam(flow.parameters(), lr=3e-3)
losses = []
for step in range(25):
    theta = torch.rand(128) * math.pi
    y = torch.stack([theta.cos() * 1.2, theta.sin() * 1.2 - 0.4], 1) + 0.05 * torch.randn(128, 2)
    if step >= 12:
        y[:3] *= torch.tensor([25.0])  # heavy tail
    loss = -flow.log_prob(y).clamp(min=-50).mean()
    opt.zero_grad()
    loss.backward()
    nn.utils.clip_grad_norm_(flow.parameters(), 1.0)
    opt.step()
    losses.append(loss.item())
print(losses)
print("FINITE", all(map(math.isfinite, losses)) and all(bool(p.isfinite().all()) for p in flow.parameters()))
