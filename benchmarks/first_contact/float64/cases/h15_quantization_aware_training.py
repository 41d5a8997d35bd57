"""Healthy. Source: pytorch docs, fake quantization; LSQ, Esser et al. 2020 (straight-through)
"""
# CHECK float64
import hashlib
import math

import torch
import torch.nn.functional as F
from torch import nn

torch.manual_seed(0)
class Round(torch.autograd.Function):
    @staticmethod
    def forward(ctx, x):
        return x.round()

    @staticmethod
    def backward(ctx, g):
        return g


class QLinear(nn.Linear):
    def forward(self, x):
        s = self.weight.detach().abs().max() / 7
        w = Round.apply((self.weight / s).clamp(-8, 7)) * s
        return F.linear(torch.fake_quantize_per_tensor_affine(x, 0.05, 0, -128, 127), w, self.bias)


model = nn.Sequential(QLinear(16, 32), nn.ReLU(), QLinear(32, 4))
x, y = torch.randn(4, 16, 16), torch.randint(0, 4, (4, 16))
optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
for step in range(4):
    loss = F.cross_entropy(model(x[step]), y[step])
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()
    print(step, loss.item(), flush=True)
digest = hashlib.sha256(b"".join(p.detach().float().contiguous().numpy().tobytes() for m in [model] for p in m.state_dict().values()))
print("weights", digest.hexdigest()[:16])
