"""Coarse-to-fine NeRF: the fine samples are drawn from the coarse weights by inverting their cdf.
Source: bmild/nerf run_nerf_helpers.py, sample_pdf ("weights += 1e-5  # prevent nans")."""
import sys, math
import torch
from torch import nn

torch.set_num_threads(1)
torch.manual_seed(5)
CURED = "--cured" in sys.argv


def field():
    return nn.Sequential(nn.Linear(3, 64), nn.ReLU(), nn.Linear(64, 64), nn.ReLU(), nn.Linear(64, 4))


def render(raw, z):
    dists = torch.cat([z[:, 1:] - z[:, :-1], torch.full_like(z[:, :1], 0.1)], -1)
    alpha = 1 - torch.exp(-torch.relu(raw[..., 3]) * dists)
    trans = torch.cumprod(torch.cat([torch.ones_like(alpha[:, :1]), 1 - alpha + 1e-10], -1), -1)[:, :-1]
    weights = alpha * trans
    return (weights[..., None] * raw[..., :3].sigmoid()).sum(1), weights


def sample_pdf(bins, weights, n):
    if CURED:
        weights = weights + 1e-5
    pdf = weights / weights.sum(-1, keepdim=True)  # FAULT
    cdf = torch.cumsum(pdf, -1)
    cdf = torch.cat([torch.zeros_like(cdf[:, :1]), cdf], -1)
    u = torch.rand(len(bins), n)
    inds = torch.searchsorted(cdf.contiguous(), u, right=True)
    below, above = (inds - 1).clamp(0), inds.clamp(max=cdf.shape[-1] - 1)
    c0, c1 = cdf.gather(1, below), cdf.gather(1, above)
    b0, b1 = bins.gather(1, below), bins.gather(1, above)
    denom = torch.where(c1 - c0 < 1e-5, torch.ones_like(c0), c1 - c0)
    return b0 + (u - c0) / denom * (b1 - b0)


coarse, fine = field(), field()
with torch.no_grad():
    coarse[-1].bias[3] = 1.0
    coarse[-1].weight[3] = -coarse[-1].weight[3].abs()
opt = torch.optim.Adam([*coarse.parameters(), *fine.parameters()], lr=5e-4)
losses = []
for step in range(16):
    origins, dirs = torch.randn(64, 3) * 0.1, nn.functional.normalize(torch.randn(64, 3), dim=-1)
    if step >= 10:  # cameras of the outer rig
        origins = origins + 40 * nn.functional.normalize(torch.randn(64, 3), dim=-1)
    colors = (dirs * 0.5 + 0.5)
    z = torch.linspace(0.5, 3, 16).expand(64, 16)
    rgb0, weights = render(coarse(origins[:, None] + dirs[:, None] * z[..., None]), z)
    mids = 0.5 * (z[:, 1:] + z[:, :-1])
    extra = sample_pdf(mids, weights[:, 1:-1], 16).detach()
    z2, _ = torch.sort(torch.cat([z, extra], -1), -1)
    rgb, _ = render(fine(origins[:, None] + dirs[:, None] * z2[..., None]), z2)
    loss = ((rgb0 - colors) ** 2).mean() + ((rgb - colors) ** 2).mean()
    opt.zero_grad()
    loss.backward()
    opt.step()
    losses.append(loss.item())
    print(step, "psnr", -10 * math.log10(losses[-1]) if losses[-1] == losses[-1] else "nan")
print("FINITE", all(map(math.isfinite, losses)) and all(bool(p.isfinite().all()) for m in (coarse, fine) for p in m.parameters()))
