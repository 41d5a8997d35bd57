"""Mean teacher with Adam-like debiasing: ema / (1 - decay ** t) at t = 0 is 0/0, and its output is the target.
Source: tinygrad/tinygrad#15724 (1 - beta^t is 0), rebuilt for a mean teacher."""
import sys
import copy
import torch
from torch import nn

CURED = "--cured" in sys.argv
torch.manual_seed(0)


class DebiasedEMA:
    def __init__(self, model, decay=0.9):
        self.ema = {k: torch.zeros_like(v) for k, v in model.named_parameters()}
        self.decay, self.t = decay, 0

    @torch.no_grad()
    def update(self, model):
        self.t += 1
        for k, v in model.named_parameters():
            self.ema[k].lerp_(v, 1 - self.decay)

    @torch.no_grad()
    def write(self, teacher):
        bias = torch.tensor(1 - self.decay**self.t)
        for k, v in teacher.named_parameters():
            v.copy_(self.ema[k] / bias)  # FAULT


student = nn.Sequential(nn.Linear(6, 16), nn.ReLU(), nn.Linear(16, 3))
teacher = copy.deepcopy(student)
ema = DebiasedEMA(student)
opt = torch.optim.SGD(student.parameters(), lr=0.05)
for step in range(4):
    if CURED and step == 0:
        ema.update(student)
    ema.write(teacher)
    x = torch.randn(8, 6)
    with torch.no_grad():
        soft = teacher(x).softmax(-1)
    loss = -(soft * student(x + 0.1 * torch.randn_like(x)).log_softmax(-1)).sum(1).mean()
    opt.zero_grad()
    loss.backward()
    opt.step()
    ema.update(student)
    print(step, loss.item())
