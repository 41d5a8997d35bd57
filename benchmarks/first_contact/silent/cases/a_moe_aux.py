"""The mixture's load-balancing loss is computed but its autograd node is thrown away: it never reaches the router.

Source: https://github.com/NVIDIA-NeMo/Automodel/issues/1408
Truth: share of tokens of the busiest expert: near 1 here, lower in the twin
Could a tool know: partly: a tensor with a graph that is never used in a backward
"""
import sys

import torch
import torch.nn.functional as F
from torch import nn

torch.set_num_threads(1)
torch.manual_seed(0)
HEALTHY = "--healthy" in sys.argv


class MoE(nn.Module):
    def __init__(self, d=16, n=4):
        super().__init__()
        self.router = nn.Linear(d, n)
        self.experts = nn.ModuleList(nn.Sequential(nn.Linear(d, 32), nn.GELU(), nn.Linear(32, d)) for _ in range(n))
        with torch.no_grad():
            self.router.bias.copy_(torch.tensor([2.0, 0.0, 0.0, 0.0]))

    def forward(self, x):
        p = self.router(x).softmax(-1)
        weight, which = p.max(-1)
        out = torch.zeros_like(x)
        for i, expert in enumerate(self.experts):
            rows = which == i
            if rows.any():
                out[rows] = expert(x[rows]) * weight[rows, None]
        self.share = F.one_hot(which, 4).float().mean(0)
        self.aux = 4 * (self.share * p.mean(0)).sum()
        return x + out


class Model(nn.Module):
    def __init__(self):
        super().__init__()
        self.inp, self.moe, self.out = nn.Linear(8, 16), MoE(), nn.Linear(16, 5)

    def forward(self, x):
        return self.out(self.moe(self.inp(x)))


model = Model()
rule = torch.randn(8, 5)
optimizer = torch.optim.AdamW(model.parameters(), lr=2e-3)
for step in range(300):
    x = torch.randn(64, 8)
    loss = F.cross_entropy(model(x), (torch.tanh(2 * x) @ rule).argmax(1))
    scaled = 0.3 * model.moe.aux
    if HEALTHY:
        loss = loss + scaled
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()
    if step % 50 == 0:
        print(step, round(loss.item(), 4), [round(s, 2) for s in model.moe.share.tolist()])
print("end: share of the busiest expert", round(model.moe.share.max().item(), 3))
