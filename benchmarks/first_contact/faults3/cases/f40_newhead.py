"""Continual learning: at a new task a head is added whose bias nobody initializes; deterministic mode fills it.
Source: pytorch/torchtitan#2450, tail-unica/hopwise#271, gordicaleksa/pytorch-GAT#11 (nn.Parameter(torch.empty))."""
import sys, math
import torch
from torch import nn
import torch.nn.functional as F

torch.set_num_threads(1)
torch.manual_seed(40)
torch.use_deterministic_algorithms(True)
CURED = "--cured" in sys.argv


class Head(nn.Module):
    def __init__(self, d, classes):
        super().__init__()
        self.weight = nn.Parameter(torch.empty(classes, d))
        self.bias = nn.Parameter(torch.empty(classes))  # FAULT
        nn.init.kaiming_uniform_(self.weight, a=5 ** 0.5)
        if CURED:
            nn.init.zeros_(self.bias)

    def forward(self, x):
        return F.linear(x, self.weight, self.bias)


class Learner(nn.Module):
    def __init__(self):
        super().__init__()
        self.body = nn.Sequential(nn.Linear(20, 64), nn.ReLU(), nn.Linear(64, 32), nn.ReLU())
        self.heads = nn.ModuleList([nn.Linear(32, 3)])

    def forward(self, x, task):
        return self.heads[task](self.body(x))


learner = Learner()
opt = torch.optim.SGD(learner.parameters(), lr=0.05, momentum=0.9)
losses = []
for step in range(18):
    task = 0 if step < 9 else 1
    if step == 9:
        learner.heads.append(Head(32, 4))
        opt.add_param_group({"params": learner.heads[1].parameters()})
    y = torch.randint(0, 3 + task, (16,))
    x = torch.randn(16, 20) + y[:, None]
    loss = F.cross_entropy(learner(x, task), y)
    if task == 1:
        loss = loss + 0.1 * F.cross_entropy(learner(x, 0), y.clamp(max=2))
    opt.zero_grad()
    loss.backward()
    opt.step()
    losses.append(loss.item())
print(losses)
print("FINITE", all(map(math.isfinite, losses)) and all(bool(p.isfinite().all()) for p in learner.parameters()))
