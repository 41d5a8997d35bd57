"""A bfloat16 MLP-mixer trained with Lion (sign updates) at 10 times its usual rate and without decay: weights random-walk outwards.
Cure: lr 3e-4."""
import sys
import torch
from torch import nn
from _lost import Lost

HEALTHY = "--healthy" in sys.argv
torch.manual_seed(0)
torch.set_num_threads(1)


class Lion(torch.optim.Optimizer):
    def __init__(self, params, lr, betas=(0.9, 0.99)):
        super().__init__(params, dict(lr=lr, betas=betas))

    @torch.no_grad()
    def step(self, closure=None):
        for g in self.param_groups:
            for p in g["params"]:
                if p.grad is None:
                    continue
                m = self.state[p].setdefault("m", torch.zeros_like(p))
                p.add_(torch.sign(m * g["betas"][0] + p.grad * (1 - g["betas"][0])), alpha=-g["lr"])
                m.mul_(g["betas"][1]).add_(p.grad, alpha=1 - g["betas"][1])


class Mixer(nn.Module):
    def __init__(self, t=8, d=32):
        super().__init__()
        self.t1, self.t2, self.c1, self.c2 = nn.Linear(t, 16), nn.Linear(16, t), nn.Linear(d, 64), nn.Linear(64, d)

    def forward(self, x):
        x = x + self.t2(torch.relu(self.t1(x.transpose(1, 2)))).transpose(1, 2)
        return x + self.c2(torch.relu(self.c1(x)))


class Net(nn.Module):
    def __init__(self):
        super().__init__()
        self.inp, self.mix, self.out = nn.Linear(6, 32), nn.Sequential(Mixer(), Mixer(), Mixer()), nn.Linear(32, 4)

    def forward(self, x):
        return self.out(self.mix(self.inp(x)).mean(1))


model = Net().bfloat16()
opt = Lion(model.parameters(), lr=3e-4 if HEALTHY else 6e-3)
w = torch.randn(6, 4)
lost = Lost()
for step in range(250):
    x = torch.randn(64, 8, 6)
    y = (x.mean(1) @ w).argmax(1)
    loss = nn.functional.cross_entropy(model(x.bfloat16()).float(), y)
    opt.zero_grad()
    loss.backward()
    opt.step()
    if not lost(loss):
        break
lost.report()
