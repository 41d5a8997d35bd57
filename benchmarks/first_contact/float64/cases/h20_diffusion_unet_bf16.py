"""Healthy. Source: lucidrains/denoising-diffusion-pytorch in small, group norm, sinusoidal time, autocast
"""
# CHECK float64
import hashlib
import math

import torch
import torch.nn.functional as F
from torch import nn

torch.manual_seed(0)
class UNet(nn.Module):
    def __init__(self):
        super().__init__()
        self.t, self.a, self.n, self.down, self.mid, self.up, self.out = nn.Linear(16, 16), nn.Conv2d(1, 16, 3, padding=1), nn.GroupNorm(4, 16), nn.Conv2d(16, 16, 3, 2, 1), nn.Conv2d(16, 16, 3, padding=1), nn.ConvTranspose2d(16, 16, 4, 2, 1), nn.Conv2d(32, 1, 1)

    def forward(self, x, t):
        f = torch.exp(-math.log(10000) * torch.arange(8) / 7)
        e = torch.cat([(t[:, None] * f).sin(), (t[:, None] * f).cos()], -1)
        h = F.silu(self.n(self.a(x)))
        m = F.silu(self.mid(self.down(h)) + self.t(e)[:, :, None, None])
        return self.out(torch.cat([h, self.up(m)], 1))


model = UNet()
beta = torch.linspace(1e-4, 0.02, 1000)
alpha = (1 - beta).cumprod(0)
x = torch.randn(4, 4, 1, 16, 16)
optimizer = torch.optim.AdamW(model.parameters(), lr=1e-3)
for step in range(4):
    t, n = torch.randint(0, 1000, (4,)), torch.randn(4, 1, 16, 16)
    a = alpha[t][:, None, None, None]
    with torch.autocast("cpu", dtype=torch.bfloat16):
        loss = F.mse_loss(model(a.sqrt() * x[step] + (1 - a).sqrt() * n, t.float()).float(), n)
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()
    print(step, loss.item(), flush=True)
digest = hashlib.sha256(b"".join(p.detach().float().contiguous().numpy().tobytes() for m in [model] for p in m.state_dict().values()))
print("weights", digest.hexdigest()[:16])
