"""Multi-resolution STFT loss: sqrt(re^2 + im^2) of silence, in backward.
Source: csteinmetz1/auraloss#63, pytorch/pytorch#2421 (sqrt's slope at 0)."""
import sys
import torch
from torch import nn

CURED = "--cured" in sys.argv
torch.manual_seed(0)


class Denoiser(nn.Module):
    def __init__(self):
        super().__init__()
        self.enc = nn.Conv1d(1, 8, 9, padding=4, bias=False)
        self.dec = nn.Conv1d(8, 1, 9, padding=4, bias=False)

    def forward(self, wave):
        return self.dec(torch.relu(self.enc(wave[:, None]))).squeeze(1)


def magnitude(wave):
    spec = torch.stft(wave, 64, 16, window=torch.hann_window(64), return_complex=True)
    power = spec.real**2 + spec.imag**2
    if CURED:
        power = power.clamp(min=1e-7)
    return torch.sqrt(power)  # FAULT


net = Denoiser()
opt = torch.optim.Adam(net.parameters(), lr=1e-3)
for step in range(4):
    clean = torch.randn(2, 512)
    if step == 2:
        clean[1] = 0  # a silent clip, and a net without biases
    noisy = clean * (1 + 0.1 * torch.randn_like(clean))
    loss = (magnitude(net(noisy)) - magnitude(clean)).abs().mean()
    opt.zero_grad()
    loss.backward()
    opt.step()
    print(step, loss.item())
