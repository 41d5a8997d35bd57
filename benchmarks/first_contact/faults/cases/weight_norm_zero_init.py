"""weight_norm of a zero-initialised layer: g * v / |v| with |v| = 0.
Source: pytorch/pytorch#19126, google/flax#1671."""
import sys
import torch
from torch import nn
from torch.nn.utils.parametrizations import weight_norm

CURED = "--cured" in sys.argv
torch.manual_seed(0)


class Residual(nn.Module):
    def __init__(self, w):
        super().__init__()
        self.a, self.b = nn.Conv1d(w, w, 3, padding=1), nn.Conv1d(w, w, 3, padding=1)
        if not CURED:
            nn.init.zeros_(self.b.weight)  # start as the identity
        self.a, self.b = weight_norm(self.a), weight_norm(self.b)

    def forward(self, x):
        h = torch.relu(self.a(x))
        return x + self.b(h)  # FAULT


net = nn.Sequential(nn.Conv1d(1, 4, 3, padding=1), Residual(4), nn.Conv1d(4, 1, 1))
opt = torch.optim.Adam(net.parameters(), lr=1e-3)
for step in range(3):
    x = torch.randn(2, 1, 16)
    loss = (net(x) - x).pow(2).mean()
    opt.zero_grad()
    loss.backward()
    opt.step()
    print(step, loss.item())
