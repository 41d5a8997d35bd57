"""Healthy. Source: switch transformers, fairseq style own routing
"""
# CHECK float64
import hashlib
import math

import torch
import torch.nn.functional as F
from torch import nn

torch.manual_seed(0)
class MoE(nn.Module):
    def __init__(self):
        super().__init__()
        self.gate, self.experts, self.head = nn.Linear(16, 4), nn.ModuleList(nn.Sequential(nn.Linear(16, 32), nn.SiLU(), nn.Linear(32, 16)) for _ in range(4)), nn.Linear(16, 2)

    def forward(self, x):
        p = self.gate(x).softmax(-1)
        v, i = p.topk(2, -1)
        v = v / v.sum(-1, keepdim=True)
        out = torch.zeros_like(x)
        for e, f in enumerate(self.experts):
            row, k = (i == e).nonzero(as_tuple=True)
            if len(row):
                out.index_add_(0, row, f(x[row]) * v[row, k, None])
        return self.head(x + out)


model = MoE().bfloat16()
x, y = torch.randn(4, 32, 16).bfloat16(), torch.randint(0, 2, (4, 32))
optimizer = torch.optim.SGD(model.parameters(), lr=0.01)
for step in range(4):
    loss = F.cross_entropy(model(x[step]).float(), y[step])
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()
    print(step, loss.item(), flush=True)
digest = hashlib.sha256(b"".join(p.detach().float().contiguous().numpy().tobytes() for m in [model] for p in m.state_dict().values()))
print("weights", digest.hexdigest()[:16])
