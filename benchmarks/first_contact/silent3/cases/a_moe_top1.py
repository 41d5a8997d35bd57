"""A mixture of experts with top-1 routing divides the chosen weight by its own sum: it is always 1, and the router learns nothing.
Source: https://github.com/jingyaogong/minimind/issues/858
Truth: the router's gradient is some 1e-8 (healthy: 1), and its weights do not learn to route.
Could a tool know: yes: the router's gradients are zero, or 2^20 smaller than all others.
"""
import sys
import torch
from torch import nn

HEALTHY = "--healthy" in sys.argv
torch.manual_seed(0)
torch.set_num_threads(1)


class MoE(nn.Module):
    def __init__(self, d=24, n=4):
        super().__init__()
        self.gate = nn.Linear(d, n, bias=False)
        self.experts = nn.ModuleList(nn.Sequential(nn.Linear(d, 48), nn.SiLU(), nn.Linear(48, d)) for _ in range(n))

    def forward(self, x):
        scores = self.gate(x).softmax(-1)
        w, idx = torch.topk(scores, 1, dim=-1)
        if not HEALTHY:
            w = w / (w.sum(-1, keepdim=True) + 1e-20)
        out = torch.zeros_like(x)
        for i, e in enumerate(self.experts):
            rows = (idx[:, 0] == i).nonzero()[:, 0]
            if len(rows):
                out = out.index_add(0, rows, e(x[rows]) * w[rows])
        return x + out


class Model(nn.Module):
    def __init__(self):
        super().__init__()
        self.inp, self.moe, self.out = nn.Linear(12, 24), MoE(), nn.Linear(24, 1)

    def forward(self, x):
        return self.out(self.moe(self.inp(x)))


model = Model()
opt = torch.optim.SGD(model.parameters(), lr=0.02, momentum=0.9)
before = model.moe.gate.weight.detach().clone()
for step in range(200):
    x = torch.randn(64, 12)
    y = torch.where(x[:, :1] > 0, x[:, 1:2] * 2, -x[:, 2:3] * 2)
    loss = nn.functional.mse_loss(model(x), y)
    opt.zero_grad()
    loss.backward()
    opt.step()
print(f"loss {loss.item():.4f} gate grad {model.moe.gate.weight.grad.norm():.2e} gate moved {(model.moe.gate.weight - before).norm():.2e}")
