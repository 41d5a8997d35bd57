"""VICReg pretraining on bf16 autocast; the standard deviation has no epsilon below the root, and one batch is all the same image.
Source: A. Bardes et al., arXiv 2105.04906 (std = sqrt(var + 1e-4)); Harmonai-org/oobleck#12 (eps)."""
import sys, math
import torch
from torch import nn
import torch.nn.functional as F

torch.set_num_threads(1)
torch.manual_seed(22)
EPS = 1e-4 if "--cured" in sys.argv else 0.0


def off_diagonal(m):
    n = len(m)
    return m.flatten()[:-1].view(n - 1, n + 1)[:, 1:].flatten()


def vicreg(za, zb):
    sim = F.mse_loss(za, zb)
    std = 0.0
    cov = 0.0
    for z in (za, zb):
        s = torch.sqrt(z.var(dim=0) + EPS)  # FAULT
        std = std + F.relu(1 - s).mean() / 2
        c = z - z.mean(0)
        cov = cov + off_diagonal(c.T @ c / (len(z) - 1)).pow(2).sum() / z.shape[1]
    return 25 * sim + 25 * std + cov


encoder = nn.Sequential(nn.Conv2d(3, 16, 3, 2), nn.GroupNorm(4, 16), nn.ReLU(), nn.Conv2d(16, 32, 3, 2), nn.GroupNorm(4, 32), nn.ReLU(), nn.AdaptiveAvgPool2d(1), nn.Flatten())
projector = nn.Sequential(nn.Linear(32, 48), nn.LayerNorm(48), nn.ReLU(), nn.Linear(48, 24))
params = [*encoder.parameters(), *projector.parameters()]
opt = torch.optim.AdamW(params, lr=1e-3)
losses = []
for step in range(14):
    x = torch.rand(12, 3, 24, 24)
    if step == 8:
        x[:] = x[:1]  # a video that stands still
    with torch.autocast("cpu", dtype=torch.bfloat16):
        za = projector(encoder(x))
        zb = projector(encoder(x.flip(-1)))
    loss = vicreg(za.float(), zb.float())
    opt.zero_grad()
    loss.backward()
    opt.step()
    losses.append(loss.item())
print(losses)
print("FINITE", all(map(math.isfinite, losses)) and all(bool(p.isfinite().all()) for p in params))
