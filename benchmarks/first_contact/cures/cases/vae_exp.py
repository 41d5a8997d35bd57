import math
import torch
import torch.nn.functional as F
from torch import nn

torch.set_num_threads(1)
torch.manual_seed(0)

# src: https://github.com/chainer/chainer/pull/7362
class VAE(nn.Module):
    def __init__(self):
        super().__init__(); self.enc = nn.Sequential(nn.Linear(20, 32), nn.ReLU()); self.mu = nn.Linear(32, 4); self.lv = nn.Linear(32, 4); self.dec = nn.Linear(4, 20)
    def forward(self, x):
        h = self.enc(x); mu, lv = self.mu(h), self.lv(h)
        z = mu + torch.randn_like(mu) * torch.exp(0.5 * lv)
        kl = -0.5 * (1 + lv - mu ** 2 - torch.exp(lv)).sum(1)
        return ((self.dec(z) - x) ** 2).sum(1).mean() + kl.mean()
model = VAE(); opt = torch.optim.Adam(model.parameters(), lr=1e-3)
for step in range(10):
    x = torch.randn(8, 20)
    if step == 6: x[3] *= 500     # an outlier
    loss = model(x)
    opt.zero_grad(); loss.backward(); opt.step()
    print(step, repr(loss.item()))
