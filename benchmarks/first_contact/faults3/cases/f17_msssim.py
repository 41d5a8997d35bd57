"""Image restoration with a multi-scale SSIM loss; an inverted image makes the contrast term negative.
Source: jorge-pessoa/pytorch-msssim#2, VainF/pytorch-msssim#7, aiff22/PyNET-PyTorch#7."""
import sys, math
import torch
from torch import nn
import torch.nn.functional as F

torch.set_num_threads(1)
torch.manual_seed(17)
CURED = "--cured" in sys.argv


def ssim(a, b, window, c1=1e-4, c2=9e-4):
    mu1, mu2 = F.conv2d(a, window), F.conv2d(b, window)
    s1 = F.conv2d(a * a, window) - mu1 ** 2
    s2 = F.conv2d(b * b, window) - mu2 ** 2
    s12 = F.conv2d(a * b, window) - mu1 * mu2
    cs = (2 * s12 + c2) / (s1 + s2 + c2)
    full = (2 * mu1 * mu2 + c1) / (mu1 ** 2 + mu2 ** 2 + c1) * cs
    return full.mean((1, 2, 3)), cs.mean((1, 2, 3))


def ms_ssim(a, b, weights=(0.3, 0.4, 0.3)):
    window = torch.ones(1, 1, 5, 5) / 25
    out = 1.0
    for i, w in enumerate(weights):
        full, cs = ssim(a, b, window)
        value = full if i == len(weights) - 1 else cs
        if CURED:
            value = F.relu(value) + 1e-6
        out = out * value ** w  # FAULT
        a, b = F.avg_pool2d(a, 2), F.avg_pool2d(b, 2)
    return out


class Restorer(nn.Module):
    def __init__(self):
        super().__init__()
        self.net = nn.Sequential(nn.Conv2d(1, 16, 3, padding=1), nn.PReLU(), nn.Conv2d(16, 16, 3, padding=1), nn.PReLU(), nn.Conv2d(16, 1, 3, padding=1))

    def forward(self, x):
        return x + 0.1 * self.net(x)


model = Restorer()
opt = torch.optim.Adam(model.parameters(), lr=1e-3)
losses = []
for step in range(15):
    clean = F.interpolate(torch.rand(4, 1, 12, 12), scale_factor=4, mode="bilinear")
    noisy = clean + 0.05 * torch.randn_like(clean)
    if step == 6:
        noisy[2] = 1 - noisy[2]  # a negative
    out = model(noisy)
    loss = 0.84 * (1 - ms_ssim(out, clean)).mean() + 0.16 * F.l1_loss(out, clean)
    opt.zero_grad()
    loss.backward()
    opt.step()
    losses.append(loss.item())
print(losses)
print("FINITE", all(map(math.isfinite, losses)) and all(bool(p.isfinite().all()) for p in model.parameters()))
