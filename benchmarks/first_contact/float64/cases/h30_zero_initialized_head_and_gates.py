"""Healthy. Source: ReZero/ControlNet zero convolutions: outputs and gradients that are exactly zero
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
        self.a, self.zero, self.gate = nn.Linear(8, 8), nn.Linear(8, 8), nn.Parameter(torch.zeros(()))
        nn.init.zeros_(self.zero.weight)
        nn.init.zeros_(self.zero.bias)

    def forward(self, x):
        return self.zero(self.a(x).relu()) + self.gate * self.a(x)


model = Net().bfloat16()
x, y = torch.randn(4, 16, 8).bfloat16(), torch.randn(4, 16, 8).bfloat16()
optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
for step in range(4):
    loss = F.mse_loss(model(x[step]), y[step])
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()
    print(step, loss.item(), flush=True)
digest = hashlib.sha256(b"".join(p.detach().float().contiguous().numpy().tobytes() for m in [model] for p in m.state_dict().values()))
print("weights", digest.hexdigest()[:16])
