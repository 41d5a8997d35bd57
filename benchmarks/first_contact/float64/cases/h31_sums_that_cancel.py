"""Healthy. Source: a centred feature (mean of a symmetric input) whose result is nothing but rounding by design: residual of a projection onto itself
"""
# CHECK float64
import hashlib
import math

import torch
import torch.nn.functional as F
from torch import nn

torch.manual_seed(0)
class Net(nn.Module):
    def __init__(self):
        super().__init__()
        self.a, self.b = nn.Linear(16, 16), nn.Linear(16, 2)

    def forward(self, x):
        h = self.a(x)
        h = h - h.mean(-1, keepdim=True)
        check = h.sum(-1, keepdim=True)  # zero but for rounding
        return self.b(h) + check


model = Net()
x, y = torch.randn(4, 16, 16), torch.randn(4, 16, 2)
optimizer = torch.optim.SGD(model.parameters(), lr=0.01)
for step in range(4):
    loss = F.mse_loss(model(x[step]), y[step])
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()
    print(step, loss.item(), flush=True)
digest = hashlib.sha256(b"".join(p.detach().float().contiguous().numpy().tobytes() for m in [model] for p in m.state_dict().values()))
print("weights", digest.hexdigest()[:16])
