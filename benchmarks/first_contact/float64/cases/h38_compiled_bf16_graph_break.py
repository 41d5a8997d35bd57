"""Healthy. Source: torch.compile in bfloat16 with a graph break and a compiled submodule
"""
# CHECK float64,eager
import hashlib
import math

import torch
import torch.nn.functional as F
from torch import nn

torch.manual_seed(0)
class Net(nn.Module):
    def __init__(self):
        super().__init__()
        self.a, self.b, self.c = nn.Linear(16, 32), nn.Linear(32, 32), nn.Linear(32, 2)

    def forward(self, x):
        h = F.silu(self.a(x))
        torch._dynamo.graph_break()
        h = F.rms_norm(h + self.b(h).sigmoid() * h, (32,))
        return self.c(h)


model = Net().bfloat16()
run = torch.compile(model)
x, y = torch.randn(4, 16, 16).bfloat16(), torch.randn(4, 16, 2).bfloat16()
optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
for step in range(4):
    loss = F.mse_loss(run(x[step]), y[step])
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()
    print(step, loss.item(), flush=True)
digest = hashlib.sha256(b"".join(p.detach().float().contiguous().numpy().tobytes() for m in [model] for p in m.state_dict().values()))
print("weights", digest.hexdigest()[:16])
