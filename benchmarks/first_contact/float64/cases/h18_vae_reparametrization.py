"""Healthy. Source: pytorch/examples vae
"""
# CHECK float64
import hashlib
import math

import torch
import torch.nn.functional as F
from torch import nn

torch.manual_seed(0)
class VAE(nn.Module):
    def __init__(self):
        super().__init__()
        self.e, self.m, self.v, self.d = nn.Linear(20, 16), nn.Linear(16, 4), nn.Linear(16, 4), nn.Sequential(nn.Linear(4, 16), nn.ReLU(), nn.Linear(16, 20))

    def forward(self, x):
        h = self.e(x).relu()
        m, v = self.m(h), self.v(h)
        return self.d(m + torch.randn_like(m) * (0.5 * v).exp()), m, v


model = VAE()
x = torch.rand(4, 32, 20)
optimizer = torch.optim.Adam(model.parameters(), lr=1e-3)
for step in range(4):
    r, m, v = model(x[step])
    loss = F.binary_cross_entropy_with_logits(r, x[step], reduction="sum") - 0.5 * (1 + v - m**2 - v.exp()).sum()
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()
    print(step, loss.item(), flush=True)
digest = hashlib.sha256(b"".join(p.detach().float().contiguous().numpy().tobytes() for m in [model] for p in m.state_dict().values()))
print("weights", digest.hexdigest()[:16])
