"""Healthy. Source: a compiled bfloat16 attention where Inductor fuses in float32 and so is nearer to float64 than eager
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
        self.qk, self.v, self.o = nn.Linear(16, 32), nn.Linear(16, 16), nn.Linear(16, 2)

    def forward(self, x):
        q, k = self.qk(x).chunk(2, -1)
        s = (q @ k.transpose(-1, -2)) * 4
        return self.o((s - s.logsumexp(-1, keepdim=True)).exp() @ self.v(x))


model = Net().bfloat16()
run = torch.compile(model)
x, y = torch.randn(4, 2, 10, 16).bfloat16(), torch.randn(4, 2, 10, 2).bfloat16()
optimizer = torch.optim.SGD(model.parameters(), lr=0.01)
for step in range(4):
    loss = F.mse_loss(run(x[step]), y[step])
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()
    print(step, loss.item(), flush=True)
digest = hashlib.sha256(b"".join(p.detach().float().contiguous().numpy().tobytes() for m in [model] for p in m.state_dict().values()))
print("weights", digest.hexdigest()[:16])
