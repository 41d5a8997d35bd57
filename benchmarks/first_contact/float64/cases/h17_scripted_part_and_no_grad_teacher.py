"""Healthy. Source: pytorch docs, torch.jit.script; distillation
"""
# CHECK float64
import hashlib
import math

import torch
import torch.nn.functional as F
from torch import nn

torch.manual_seed(0)
@torch.jit.script
def gate(a: torch.Tensor, b: torch.Tensor) -> torch.Tensor:
    return torch.sigmoid(a) * torch.tanh(b)


class Net(nn.Module):
    def __init__(self, n):
        super().__init__()
        self.a, self.b, self.c = nn.Linear(8, n), nn.Linear(8, n), nn.Linear(n, 3)

    def forward(self, x):
        return self.c(gate(self.a(x), self.b(x)))


model, teacher = Net(8), Net(32).eval()
x = torch.randn(4, 16, 8)
optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
for step in range(4):
    with torch.no_grad():
        t = teacher(x[step]).softmax(-1)
    loss = F.kl_div(model(x[step]).log_softmax(-1), t, reduction="batchmean")
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()
    print(step, loss.item(), flush=True)
digest = hashlib.sha256(b"".join(p.detach().float().contiguous().numpy().tobytes() for m in [model, teacher] for p in m.state_dict().values()))
print("weights", digest.hexdigest()[:16])
