"""Healthy. Source: gpytorch style exact GP: Cholesky, triangular solves, logdet
"""
# CHECK float64
import hashlib
import math

import torch
import torch.nn.functional as F
from torch import nn

torch.manual_seed(0)
class GP(nn.Module):
    def __init__(self):
        super().__init__()
        self.length, self.noise = nn.Parameter(torch.zeros(())), nn.Parameter(torch.tensor(-1.0))

    def forward(self, x, y):
        d = (x[:, None] - x[None]).square().sum(-1)
        k = torch.exp(-d / (2 * self.length.exp() ** 2)) + self.noise.exp() * torch.eye(len(x))
        c = torch.linalg.cholesky(k)
        a = torch.cholesky_solve(y[:, None], c)[:, 0]
        return 0.5 * y @ a + c.diagonal().log().sum()


model = GP()
x = torch.randn(24, 2)
y = x.sin().sum(-1)
optimizer = torch.optim.Adam(model.parameters(), lr=0.01)
for step in range(4):
    loss = model(x, y)
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()
    print(step, loss.item(), flush=True)
digest = hashlib.sha256(b"".join(p.detach().float().contiguous().numpy().tobytes() for m in [model] for p in m.state_dict().values()))
print("weights", digest.hexdigest()[:16])
