"""Sharpness-aware minimization (LookSAM-like, written by hand) with a hinge loss: one batch is classified beyond the margin.
Source: google-deepmind/optax#1743, rollovd/LookSAM#1, davda54/sam#14 (the 1e-12)."""
import sys, math
import torch
from torch import nn

torch.set_num_threads(1)
torch.manual_seed(20)
TINY = 1e-12 if "--cured" in sys.argv else 0.0


class SAM(torch.optim.Optimizer):
    def __init__(self, params, base, rho=0.05, **kwargs):
        super().__init__(params, dict(rho=rho, **kwargs))
        self.base = base(self.param_groups, **kwargs)
        self.param_groups = self.base.param_groups

    @torch.no_grad()
    def first_step(self):
        norms = [p.grad.norm(p=2) for g in self.param_groups for p in g["params"] if p.grad is not None]
        norm = torch.stack(norms).norm(p=2)
        for group in self.param_groups:
            scale = group["rho"] / (norm + TINY)  # FAULT
            for p in group["params"]:
                e = p.grad * scale
                p.add_(e)
                self.state[p]["e"] = e
        self.zero_grad()

    @torch.no_grad()
    def second_step(self):
        for group in self.param_groups:
            for p in group["params"]:
                p.sub_(self.state[p]["e"])
        self.base.step()
        self.zero_grad()


class Net(nn.Module):
    def __init__(self):
        super().__init__()
        self.conv = nn.Sequential(nn.Conv2d(1, 8, 3), nn.ReLU(), nn.MaxPool2d(2), nn.Conv2d(8, 16, 3), nn.ReLU(), nn.AdaptiveAvgPool2d(1), nn.Flatten())
        self.fc = nn.Linear(16, 1)

    def forward(self, x):
        return self.fc(self.conv(x)).squeeze(1)


def hinge(out, y):
    return torch.relu(1 - out * y).mean()


net = Net()
opt = SAM(net.parameters(), torch.optim.SGD, rho=0.05, lr=0.3, momentum=0.9)
losses = []
for step in range(30):
    y = torch.randint(0, 2, (12,)) * 2.0 - 1
    x = torch.randn(12, 1, 14, 14) * 0.3 + y[:, None, None, None]
    loss = hinge(net(x), y)
    loss.backward()
    opt.first_step()
    hinge(net(x), y).backward()
    opt.second_step()
    losses.append(loss.item())
    print(step, losses[-1])
print("FINITE", all(map(math.isfinite, losses)) and all(bool(p.isfinite().all()) for p in net.parameters()))
