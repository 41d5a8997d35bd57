"""Healthy. Source: normalizing flows (RealNVP), logdet and inverse pass
"""
# CHECK float64
import hashlib
import math

import torch
import torch.nn.functional as F
from torch import nn

torch.manual_seed(0)
class Coupling(nn.Module):
    def __init__(self, flip):
        super().__init__()
        self.flip, self.net = flip, nn.Sequential(nn.Linear(3, 16), nn.ReLU(), nn.Linear(16, 6))

    def forward(self, x):
        a, b = x.chunk(2, -1)[:: -1 if self.flip else 1]
        s, t = self.net(a).chunk(2, -1)
        s = s.tanh()
        b = b * s.exp() + t
        return torch.cat([b, a] if self.flip else [a, b], -1), s.sum(-1)


class Flow(nn.Module):
    def __init__(self):
        super().__init__()
        self.steps = nn.ModuleList(Coupling(i % 2) for i in range(4))

    def forward(self, x):
        total = 0
        for f in self.steps:
            x, d = f(x)
            total = total + d
        return -0.5 * x.square().sum(-1) + total


model = Flow()
x = torch.randn(4, 32, 6)
optimizer = torch.optim.Adam(model.parameters(), lr=0.001)
for step in range(4):
    loss = -model(x[step]).mean()
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()
    print(step, loss.item(), flush=True)
digest = hashlib.sha256(b"".join(p.detach().float().contiguous().numpy().tobytes() for m in [model] for p in m.state_dict().values()))
print("weights", digest.hexdigest()[:16])
