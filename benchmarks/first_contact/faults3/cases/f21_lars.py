"""SimSiam-like pretraining with LARS written by hand; the auxiliary head gets no signal in a batch without its label.
Source: cybertronai/pytorch-lamb#6, mosaicml/composer#967 (trust ratio when a norm is 0), google/objax#136."""
import sys, math
import torch
from torch import nn
import torch.nn.functional as F

torch.set_num_threads(1)
torch.manual_seed(21)
CURED = "--cured" in sys.argv


class LARS(torch.optim.Optimizer):
    def __init__(self, params, lr, momentum=0.9, trust=0.01):
        super().__init__(params, dict(lr=lr, momentum=momentum, trust=trust))

    @torch.no_grad()
    def step(self):
        for group in self.param_groups:
            for p in group["params"]:
                if p.grad is None:
                    continue
                update = p.grad
                if p.ndim > 1:
                    w_norm, g_norm = p.norm(), update.norm()
                    if CURED:
                        ratio = torch.where(g_norm > 0, group["trust"] * w_norm / g_norm.clamp(min=1e-12), 1.0)
                    else:
                        ratio = group["trust"] * w_norm / g_norm  # FAULT
                    update = update * ratio
                buf = self.state[p].setdefault("mu", torch.zeros_like(p))
                buf.mul_(group["momentum"]).add_(update)
                p.sub_(buf, alpha=group["lr"])


class SimSiam(nn.Module):
    def __init__(self):
        super().__init__()
        self.enc = nn.Sequential(nn.Conv2d(3, 16, 3, 2), nn.BatchNorm2d(16), nn.ReLU(), nn.Conv2d(16, 32, 3, 2), nn.BatchNorm2d(32), nn.ReLU(), nn.AdaptiveAvgPool2d(1), nn.Flatten(), nn.Linear(32, 32))
        self.pred = nn.Sequential(nn.Linear(32, 16), nn.BatchNorm1d(16), nn.ReLU(), nn.Linear(16, 32))
        self.aux = nn.Linear(32, 5)

    def forward(self, a, b):
        za, zb = self.enc(a), self.enc(b)
        return -(F.cosine_similarity(self.pred(za), zb.detach()).mean() + F.cosine_similarity(self.pred(zb), za.detach()).mean()) / 2, self.aux(za)


model = SimSiam()
opt = LARS(model.parameters(), lr=0.3)
losses = []
for step in range(15):
    x = torch.rand(8, 3, 24, 24)
    labelled = torch.rand(8) < 0.6
    if step == 4:
        labelled[:] = False
    loss, logits = model(x + 0.1 * torch.randn_like(x), x.flip(-1))
    ce = F.cross_entropy(logits, torch.randint(0, 5, (8,)), reduction="none")
    loss = loss + 0.2 * (ce * labelled).sum() / 8
    opt.zero_grad()
    loss.backward()
    opt.step()
    losses.append(loss.item())
    print(step, losses[-1])
print("FINITE", all(map(math.isfinite, losses)) and all(bool(t.isfinite().all()) for t in model.state_dict().values()))
