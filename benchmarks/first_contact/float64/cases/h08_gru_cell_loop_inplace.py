"""Healthy. Source: pytorch forum, recurrent loops that write into a preallocated tensor
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
        self.cell, self.h = nn.GRUCell(6, 10), nn.Linear(10, 2)

    def forward(self, x):
        out = x.new_zeros(x.shape[0], x.shape[1], 10)
        s = x.new_zeros(x.shape[0], 10)
        for t in range(x.shape[1]):
            s = self.cell(x[:, t], s)
            out[:, t] = s
        return self.h(out).mul_(0.5).add_(1)


model = Net()
x, y = torch.randn(4, 5, 7, 6), torch.randn(4, 5, 7, 2)
optimizer = torch.optim.RMSprop(model.parameters(), lr=0.001)
for step in range(4):
    loss = F.mse_loss(model(x[step]), y[step])
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()
    print(step, loss.item(), flush=True)
digest = hashlib.sha256(b"".join(p.detach().float().contiguous().numpy().tobytes() for m in [model] for p in m.state_dict().values()))
print("weights", digest.hexdigest()[:16])
