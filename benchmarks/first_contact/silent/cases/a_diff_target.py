"""The denoiser predicts the noise, but the loss compares its output with x_noisy.

Source: https://github.com/irom-princeton/dppo/issues/14
Truth: the network learns to copy its input: its error against the noise stays high, the loss falls to 0
Could a tool know: partly: the loss's target is the model's own input
"""
import sys

import torch
import torch.nn.functional as F
from torch import nn

torch.set_num_threads(1)
torch.manual_seed(0)
HEALTHY = "--healthy" in sys.argv

T = 50
beta = torch.linspace(1e-4, 0.1, T)
bar = (1 - beta).cumprod(0)


class Denoiser(nn.Module):
    def __init__(self):
        super().__init__()
        self.time = nn.Embedding(T, 16)
        self.net = nn.Sequential(nn.Linear(18, 64), nn.SiLU(), nn.Linear(64, 64), nn.SiLU(), nn.Linear(64, 2))

    def forward(self, x, t):
        return self.net(torch.cat([x, self.time(t)], 1))


model = Denoiser()
optimizer = torch.optim.AdamW(model.parameters(), lr=2e-3)
for step in range(400):
    angle = torch.rand(128) * 6.283
    x0 = torch.stack([angle.cos(), angle.sin()], 1)
    t = torch.randint(0, T, (128,))
    noise = torch.randn_like(x0)
    x = bar[t].sqrt()[:, None] * x0 + (1 - bar[t]).sqrt()[:, None] * noise
    out = model(x, t)
    loss = F.mse_loss(out, noise if HEALTHY else x)
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()
    if step % 80 == 0:
        print(step, round(loss.item(), 4))
print("end: loss", round(loss.item(), 4), "error against the noise", round(F.mse_loss(out, noise).item(), 4))
