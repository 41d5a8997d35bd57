"""Healthy. Source: torch.compile of a function that calls modules, aot_eager, checkpoint within, fallback_random
"""
# CHECK float64,eager
import hashlib
import math

import torch
import torch.nn.functional as F
from torch import nn

torch.manual_seed(0)
import torch._inductor.config
from torch.utils.checkpoint import checkpoint

torch._inductor.config.fallback_random = True


class Net(nn.Module):
    def __init__(self):
        super().__init__()
        self.a, self.b = nn.Sequential(nn.Linear(8, 16), nn.Dropout(0.1), nn.GELU()), nn.Linear(16, 2)

    def forward(self, x):
        return self.b(checkpoint(self.a, x, use_reentrant=False))


model = Net()
run = torch.compile(model)
x, y = torch.randn(4, 16, 8), torch.randn(4, 16, 2)
optimizer = torch.optim.Adam(model.parameters(), lr=0.01)
for step in range(4):
    loss = F.mse_loss(run(x[step]), y[step])
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()
    print(step, loss.item(), flush=True)
digest = hashlib.sha256(b"".join(p.detach().float().contiguous().numpy().tobytes() for m in [model] for p in m.state_dict().values()))
print("weights", digest.hexdigest()[:16])
