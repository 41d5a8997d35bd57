"""Healthy. Source: Jang et al. 2017, F.gumbel_softmax(hard=True); top-k masks, sort
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
        self.a, self.b = nn.Linear(8, 12), nn.Linear(12, 2)

    def forward(self, x):
        z = self.a(x)
        g = F.gumbel_softmax(z, tau=0.7, hard=True)
        keep = torch.zeros_like(z).scatter_(-1, z.topk(3).indices, 1.0)
        return self.b(g + z * keep + z.sort(-1).values * 0.1)


model = Net().bfloat16()
x, y = torch.randn(4, 16, 8).bfloat16(), torch.randn(4, 16, 2).bfloat16()
optimizer = torch.optim.SGD(model.parameters(), lr=0.01)
for step in range(4):
    loss = F.mse_loss(model(x[step]), y[step])
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()
    print(step, loss.item(), flush=True)
digest = hashlib.sha256(b"".join(p.detach().float().contiguous().numpy().tobytes() for m in [model] for p in m.state_dict().values()))
print("weights", digest.hexdigest()[:16])
