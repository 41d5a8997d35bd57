"""Vocoder post-filter with a multi-resolution STFT loss; a clip has digital silence.
Source: KinWaiCheuk/nnAudio#138, csteinmetz1/auraloss#63 (magnitude without epsilon)."""
import sys, math
import torch
from torch import nn

torch.set_num_threads(1)
torch.manual_seed(2)
EPS = 1e-8 if "--cured" in sys.argv else 0.0


def magnitude(wave, n_fft):
    spec = torch.stft(wave, n_fft, n_fft // 4, window=torch.hann_window(n_fft), return_complex=True, center=False)
    power = spec.real ** 2 + spec.imag ** 2
    return torch.sqrt(power + EPS)  # FAULT


def stft_loss(fake, real):
    total = 0.0
    for n_fft in (64, 128):
        a, b = magnitude(fake, n_fft), magnitude(real, n_fft)
        total = total + (a - b).norm() / (b.norm() + 1e-3) + (a - b).abs().mean()
    return total


class PostFilter(nn.Module):
    def __init__(self):
        super().__init__()
        self.body = nn.Sequential(nn.Conv1d(1, 16, 9, padding=4, bias=False), nn.Tanh(), nn.Conv1d(16, 1, 9, padding=4, bias=False))

    def forward(self, wave):
        return wave + self.body(wave[:, None])[:, 0]


net = PostFilter()
opt = torch.optim.AdamW(net.parameters(), lr=1e-3, betas=(0.8, 0.99))
losses = []
for step in range(14):
    t = torch.arange(1024) / 16000
    real = torch.sin(2 * math.pi * torch.randint(100, 2000, (4, 1)) * t) * 0.3 + 0.001 * torch.randn(4, 1024)
    noisy = real + 0.05 * torch.randn_like(real)
    if step == 5:  # the speaker has paused
        noisy[1, 300:800] = 0
        real[1, 300:800] = 0
    loss = stft_loss(net(noisy), real)
    opt.zero_grad()
    loss.backward()
    opt.step()
    losses.append(loss.item())
    print(step, losses[-1])
print("FINITE", all(map(math.isfinite, losses)) and all(bool(p.isfinite().all()) for p in net.parameters()))
