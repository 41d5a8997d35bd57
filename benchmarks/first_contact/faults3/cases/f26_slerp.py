"""Latent mixup by spherical interpolation; the permutation maps a sample to itself.
Source: dfki-ric/pytransform3d#45, toji/gl-matrix#500, gbionics/liecasadi#12 (slerp of equal vectors)."""
import sys, math
import torch
from torch import nn
import torch.nn.functional as F

torch.set_num_threads(1)
torch.manual_seed(26)
CURED = "--cured" in sys.argv


def slerp(a, b, t):
    cos = (a * b).sum(-1, keepdim=True).clamp(-1, 1)
    if CURED:
        cos = cos.clamp(-1 + 1e-4, 1 - 1e-4)
    omega = torch.acos(cos.detach())
    so = torch.sin(omega)
    return torch.sin((1 - t) * omega) / so * a + torch.sin(t * omega) / so * b  # FAULT


class Encoder(nn.Module):
    def __init__(self):
        super().__init__()
        self.emb = nn.EmbeddingBag(200, 32, mode="mean")
        self.net = nn.Sequential(nn.Linear(32, 32), nn.GELU(), nn.Linear(32, 16))

    def forward(self, ids):
        return F.normalize(self.net(self.emb(ids)), dim=-1)


encoder, head = Encoder(), nn.Linear(16, 3)
ema = {k: v.clone() for k, v in encoder.state_dict().items()}
opt = torch.optim.Adam([*encoder.parameters(), *head.parameters()], lr=2e-3)
losses = []
for step in range(16):
    ids = torch.randint(0, 200, (24, 12))
    y = ids[:, 0] % 3
    z = encoder(ids)
    perm = torch.roll(torch.arange(24), 1 + step % 5) if step < 6 else torch.randperm(24)
    lam = float(torch.distributions.Beta(0.4, 0.4).sample())
    mixed = slerp(z, z[perm], 1 - lam)
    logits = head(mixed)
    loss = lam * F.cross_entropy(logits, y) + (1 - lam) * F.cross_entropy(logits, y[perm])
    opt.zero_grad()
    loss.backward()
    opt.step()
    with torch.no_grad():
        for k, v in encoder.state_dict().items():
            ema[k].lerp_(v, 0.1)
    losses.append(loss.item())
print(losses)
print("FINITE", all(map(math.isfinite, losses)) and all(bool(p.isfinite().all()) for p in [*encoder.parameters(), *head.parameters(), *ema.values()]))
