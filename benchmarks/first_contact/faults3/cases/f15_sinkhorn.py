"""Set matching by Sinkhorn in probability space, with a regularization that is annealed.
Source: PythonOT/POT#54, t-vi/pytorch-tvmisc#9, google-research/ott#5."""
import sys, math
import torch
from torch import nn

torch.set_num_threads(1)
torch.manual_seed(15)
CURED = "--cured" in sys.argv


def sinkhorn(cost, reg, iters=12):
    n, m = cost.shape[-2:]
    a, b = torch.full((len(cost), n), 1.0 / n), torch.full((len(cost), m), 1.0 / m)
    if CURED:
        f, g = torch.zeros_like(a), torch.zeros_like(b)
        for _ in range(iters):
            f = reg * (a.log() - torch.logsumexp((g[:, None, :]) / reg - cost / reg, 2))
            g = reg * (b.log() - torch.logsumexp((f[:, :, None]) / reg - cost / reg, 1))
        return ((f[:, :, None] + g[:, None] - cost) / reg).exp()
    kernel = torch.exp(-cost / reg)
    u, v = torch.ones_like(a), torch.ones_like(b)
    for _ in range(iters):
        u = a / torch.einsum("bij,bj->bi", kernel, v)
        v = b / torch.einsum("bij,bi->bj", kernel, u)  # FAULT
    return u[:, :, None] * kernel * v[:, None]


class SetDecoder(nn.Module):
    def __init__(self, slots=6, dim=4):
        super().__init__()
        self.slots, self.dim = slots, dim
        self.net = nn.Sequential(nn.Linear(8, 64), nn.SiLU(), nn.Linear(64, slots * dim))

    def forward(self, z):
        return self.net(z).view(-1, self.slots, self.dim)


model = SetDecoder()
opt = torch.optim.RMSprop(model.parameters(), lr=1e-3)
reg, losses = 60.0, []
for step in range(24):
    z = torch.randn(16, 8)
    target = torch.stack([z[:, i:i + 4] * 1.5 + i for i in range(5)] + [z[:, :4]], 1)
    cost = torch.cdist(model(z), target).pow(2)
    plan = sinkhorn(cost, reg)
    loss = (plan * cost).sum((1, 2)).mean()
    opt.zero_grad()
    loss.backward()
    opt.step()
    reg *= 0.75
    losses.append(loss.item())
print(losses)
print("FINITE", all(map(math.isfinite, losses)) and all(bool(p.isfinite().all()) for p in model.parameters()))
