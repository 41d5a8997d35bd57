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
        var = lv.exp()
        z = mu + torch.randn_like(mu) * var.sqrt()
        return self.dec(z), mu, lv, var
model = VAE().half(); opt = torch.optim.SGD(model.parameters(), lr=1e-4)
import numscope
numscope.high_precision(model)
for step in range(10):
    x = torch.randn(8, 20).half()
    if step == 4: x[3] *= 60
    r, mu, lv, var = model(x)
    loss = ((r - x).float() ** 2).mean() + 0.5 * (var.float() + mu.float() ** 2 - 1 - lv.float()).mean()
    opt.zero_grad(); loss.backward(); opt.step()
    print(step, repr(loss.item()))
