"""Healthy. Source: neuraloperator/neuraloperator, FNO's spectral convolution
"""
# CHECK float64
import hashlib
import math

import torch
import torch.nn.functional as F
from torch import nn

torch.manual_seed(0)
class Spectral(nn.Module):
    def __init__(self):
        super().__init__()
        self.w = nn.Parameter(torch.randn(4, 4, 6, dtype=torch.cfloat) * 0.2)
        self.a, self.b, self.c = nn.Conv1d(1, 4, 1), nn.Conv1d(4, 1, 1), nn.Conv1d(4, 4, 1)

    def forward(self, x):
        h = self.a(x)
        f = torch.fft.rfft(h)
        g = torch.zeros_like(f)
        g[..., :6] = torch.einsum("bix,iox->box", f[..., :6], self.w)
        return self.b(F.gelu(torch.fft.irfft(g, n=x.shape[-1]) + self.c(h)))


model = Spectral()
x = torch.randn(4, 3, 1, 32)
optimizer = torch.optim.Adam(model.parameters(), lr=1e-3)
for step in range(4):
    loss = F.mse_loss(model(x[step]), x[step].cumsum(-1) / 5)
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()
    print(step, loss.item(), flush=True)
digest = hashlib.sha256(b"".join(torch.view_as_real(p.detach()).numpy().tobytes() if p.is_complex() else p.detach().numpy().tobytes() for p in model.parameters()))
print("weights", digest.hexdigest()[:16])
