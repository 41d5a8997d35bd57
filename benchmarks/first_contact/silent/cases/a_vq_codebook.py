"""The codebook loss is computed on the straight-through output: the codebook gets no gradient.

Source: https://github.com/showlab/Olaf-World/issues/8
Truth: the codebook is bit for bit as at the start
Could a tool know: yes: a parameter of the optimizer is used in the forward and gets no gradient
"""
import sys

import torch
import torch.nn.functional as F
from torch import nn

torch.set_num_threads(1)
torch.manual_seed(0)
HEALTHY = "--healthy" in sys.argv


class VQVAE(nn.Module):
    def __init__(self):
        super().__init__()
        self.enc = nn.Sequential(nn.Linear(16, 32), nn.ReLU(), nn.Linear(32, 8))
        self.codebook = nn.Embedding(32, 8)
        self.dec = nn.Sequential(nn.Linear(8, 32), nn.ReLU(), nn.Linear(32, 16))

    def forward(self, x):
        z_e = self.enc(x)
        z = self.codebook(torch.cdist(z_e, self.codebook.weight).argmin(1))
        z_q = z_e + (z - z_e).detach()
        codebook_loss = F.mse_loss(z if HEALTHY else z_q, z_e.detach())
        return self.dec(z_q), codebook_loss + 0.25 * F.mse_loss(z_e, z.detach())


model = VQVAE()
before = model.codebook.weight.detach().clone()
mix = torch.randn(12, 16)
optimizer = torch.optim.Adam(model.parameters(), lr=2e-3)
for step in range(250):
    x = mix[torch.randint(0, 12, (64,))] + 0.1 * torch.randn(64, 16)
    rec, vq = model(x)
    loss = F.mse_loss(rec, x) + vq
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()
    if step % 50 == 0:
        print(step, round(loss.item(), 4))
print("end: codebook unchanged", torch.equal(before, model.codebook.weight))
