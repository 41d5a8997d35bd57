"""Benign: the SNR table of a schedule whose first step has no noise is inf at t = 0, and min(snr, 5) takes it away.
Source: TiankaiHang/Min-SNR-Diffusion-Training, Project-MONAI/GenerativeModels#489 (alphas_cumprod[0] = 1)."""
import math
import torch
from torch import nn

torch.manual_seed(0)
t = torch.linspace(0, 1, 51)
abar = torch.cos(t * math.pi / 2 * 0.99) ** 2
abar = abar / abar[0]
snr = abar / (1 - abar)
assert snr[0].isinf()
weight = snr.clamp(max=5.0)


class Denoiser(nn.Module):
    def __init__(self):
        super().__init__()
        self.net = nn.Sequential(nn.Linear(3, 32), nn.SiLU(), nn.Linear(32, 2))

    def forward(self, x, k):
        return self.net(torch.cat([x, k[:, None] / 50], 1))


net = Denoiser()
opt = torch.optim.AdamW(net.parameters(), lr=1e-3)
for step in range(5):
    k = torch.cat([torch.zeros(1, dtype=torch.long), torch.randint(51, (15,))])
    x, eps = torch.randn(16, 2), torch.randn(16, 2)
    a = abar[k][:, None]
    loss = (weight[k] * (net(a.sqrt() * x + (1 - a).sqrt() * eps, k) - x).pow(2).mean(1)).mean()
    opt.zero_grad()
    loss.backward()
    opt.step()
    print(step, loss.item())
assert loss.isfinite()
