"""The codebook loss of a VQ-VAE is computed on the straight-through output, in which the code is detached: the codebook gets no
gradient and stays as it was initialized.
Source: https://github.com/showlab/Olaf-World/issues/8
Truth: the codebook is the same bits at the end.
Could a tool know: yes: a trainable parameter in an optimizer gets no gradient.
"""
import sys
import torch
from torch import nn
import torch.nn.functional as F

HEALTHY = "--healthy" in sys.argv
torch.manual_seed(0)
torch.set_num_threads(1)


class VQ(nn.Module):
    def __init__(self, k=32, d=8):
        super().__init__()
        self.codebook = nn.Embedding(k, d)

    def forward(self, x):
        idx = torch.cdist(x, self.codebook.weight).argmin(-1)
        z = self.codebook(idx)
        return x + (z - x).detach(), z


class VQVAE(nn.Module):
    def __init__(self):
        super().__init__()
        self.enc = nn.Sequential(nn.Linear(16, 32), nn.ReLU(), nn.Linear(32, 8))
        self.vq = VQ()
        self.dec = nn.Sequential(nn.Linear(8, 32), nn.ReLU(), nn.Linear(32, 16))

    def forward(self, x):
        e = self.enc(x)
        q, z = self.vq(e)
        return self.dec(q), e, q, z


model = VQVAE()
opt = torch.optim.Adam(model.parameters(), lr=3e-4)
before = model.vq.codebook.weight.detach().clone()
basis = torch.randn(6, 16)
for step in range(200):
    x = basis[torch.randint(0, 6, (64,))] + 0.1 * torch.randn(64, 16)
    rec, e, q, z = model(x)
    code = F.mse_loss(z if HEALTHY else q, e.detach())
    loss = F.mse_loss(rec, x) + code + 0.25 * F.mse_loss(e, z.detach())
    opt.zero_grad()
    loss.backward()
    opt.step()
print(f"loss {loss.item():.4f} codebook moved {(model.vq.codebook.weight - before).abs().max():.2e}")
