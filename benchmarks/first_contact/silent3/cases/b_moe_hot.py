"""A mixture of experts without balance or z-loss, residual, no norm, AdamW with a rate of 0.05 that was meant for SGD. Cure: 2e-3."""
import sys
import torch
from torch import nn
from _lost import Lost

HEALTHY = "--healthy" in sys.argv
torch.manual_seed(0)
torch.set_num_threads(1)


class MoE(nn.Module):
    def __init__(self, d=32, n=4):
        super().__init__()
        self.gate = nn.Linear(d, n)
        self.experts = nn.ModuleList(nn.Sequential(nn.Linear(d, 64), nn.ReLU(), nn.Linear(64, d)) for _ in range(n))

    def forward(self, x):
        w, i = self.gate(x).softmax(-1).topk(2, -1)
        out = torch.zeros_like(x)
        for j, e in enumerate(self.experts):
            k = (w * (i == j)).sum(-1, keepdim=True)
            rows = (k[:, 0] > 0).nonzero()[:, 0]
            if len(rows):
                out = out.index_add(0, rows, e(x[rows]) * k[rows])
        return x + out


model = nn.Sequential(nn.Linear(10, 32), MoE(), MoE(), MoE(), nn.Linear(32, 1))
opt = torch.optim.AdamW(model.parameters(), lr=2e-3 if HEALTHY else 0.05)
warm = 120
w = torch.randn(10, 1)
lost = Lost()
for step in range(260):
    for g in opt.param_groups:
        g["lr"] = (2e-3 if HEALTHY else 0.05) * min(1, ((step + 1) / warm) ** 2)
    x = torch.randn(64, 10)
    loss = nn.functional.mse_loss(model(x), x @ w + torch.sin(3 * x[:, :1]))
    opt.zero_grad()
    loss.backward()
    opt.step()
    if not lost(loss):
        break
lost.report()
