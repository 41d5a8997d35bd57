"""PCGrad for two tasks, vectorized; when one task has no label in the batch, its gradient is zero.
Source: T. Yu et al., arXiv 2001.06782; WeiChengTseng/Pytorch-PCGrad (projection g_i -= (g_i.g_j) g_j / |g_j|^2)."""
import sys, math
import torch
from torch import nn
import torch.nn.functional as F

torch.set_num_threads(1)
torch.manual_seed(45)
TINY = 1e-12 if "--cured" in sys.argv else 0.0


class MultiTask(nn.Module):
    def __init__(self):
        super().__init__()
        self.shared = nn.Sequential(nn.Conv2d(1, 8, 3, padding=1), nn.ReLU(), nn.Conv2d(8, 8, 3, padding=1), nn.ReLU())
        self.seg, self.depth = nn.Conv2d(8, 3, 1), nn.Conv2d(8, 1, 1)

    def forward(self, x):
        h = self.shared(x)
        return self.seg(h), self.depth(h).squeeze(1)


def flat_grad(loss, params):
    grads = torch.autograd.grad(loss, params, retain_graph=True, allow_unused=True)
    return torch.cat([(torch.zeros_like(p) if g is None else g).flatten() for g, p in zip(grads, params)])


def pc_merge(grads):
    g = torch.stack(grads)
    out = g.clone()
    for j in range(len(g)):
        coef = (out @ g[j]).clamp(max=0) / (g[j].pow(2).sum() + TINY)  # FAULT
        coef[j] = 0 if TINY else coef[j] * 0
        out = out - coef[:, None] * g[j]
    return out.sum(0)


model = MultiTask()
params = list(model.parameters())
opt = torch.optim.Adam(params, lr=2e-3)
losses = []
for step in range(16):
    x = torch.rand(4, 1, 12, 12)
    seg, depth = (x[:, 0] * 2.999).long(), x[:, 0].flip(-1)
    valid = (torch.rand_like(depth) < 0.4).float()
    if step == 7:
        valid.zero_()  # the lidar had no returns
    s, d = model(x)
    task = [F.cross_entropy(s, seg), ((d - depth).abs() * valid).mean()]
    merged = pc_merge([flat_grad(t, params) for t in task])
    offset = 0
    for p in params:
        p.grad = merged[offset:offset + p.numel()].view_as(p)
        offset += p.numel()
    opt.step()
    losses.append(sum(t.item() for t in task))
print(losses)
print("FINITE", all(map(math.isfinite, losses)) and all(bool(p.isfinite().all()) for p in params))
