"""Healthy. Source: tristandeleu/pytorch-maml style inner loop with create_graph
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
        self.w, self.b, self.lr = nn.Parameter(torch.randn(4, 1) * 0.3), nn.Parameter(torch.zeros(1)), nn.Parameter(torch.tensor(0.1))

    def forward(self, x, y, q):
        w, b = self.w, self.b
        for _ in range(3):
            with torch.enable_grad():
                gw, gb = torch.autograd.grad(F.mse_loss(x @ w + b, y), (w, b), create_graph=True)
            w, b = w - self.lr * gw, b - self.lr * gb
        return q @ w + b


model = Net()
x, y, q, t = torch.randn(4, 8, 4), torch.randn(4, 8, 1), torch.randn(4, 8, 4), torch.randn(4, 8, 1)
optimizer = torch.optim.Adam(model.parameters(), lr=0.01)
for step in range(4):
    loss = F.mse_loss(model(x[step], y[step], q[step]), t[step])
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()
    print(step, loss.item(), flush=True)
digest = hashlib.sha256(b"".join(p.detach().float().contiguous().numpy().tobytes() for m in [model] for p in m.state_dict().values()))
print("weights", digest.hexdigest()[:16])
