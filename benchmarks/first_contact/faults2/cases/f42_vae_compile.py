"""AntixK/PyTorch-VAE (KL term): exp(logvar) overflows in a torch.compile'd VAE (aot_eager), inputs not scaled
TRUTH op=aten.exp reason=exp overflow"""
import sys
import torch
from torch import nn
import torch.nn.functional as F
from _util import done
CURED = "--cured" in sys.argv
torch.manual_seed(0); torch.set_num_threads(1)

class VAE(nn.Module):
    def __init__(self):
        super().__init__(); self.e = nn.Sequential(nn.Linear(64, 32), nn.ReLU()); self.mu, self.lv = nn.Linear(32, 4), nn.Linear(32, 4); self.d = nn.Sequential(nn.Linear(4, 32), nn.ReLU(), nn.Linear(32, 64))
    def forward(self, x):
        h = self.e(x); mu, lv = self.mu(h), self.lv(h)
        if CURED: lv = lv.clamp(-20, 10)
        kl = -0.5 * (1 + lv - mu ** 2 - lv.exp()).sum(1)  # FAULT
        z = mu + torch.randn_like(mu) * (0.5 * lv.clamp(max=20)).exp()
        return self.d(z), kl
net = VAE(); opt = torch.optim.Adam(net.parameters(), 1e-3); step_fn = torch.compile(net, backend="aot_eager")
for step in range(4):
    x = torch.rand(8, 64)
    if step == 2: x *= 255 * 8
    r, kl = step_fn(x); loss = F.mse_loss(r, x.clamp(0, 1)) + 1e-3 * kl.mean(); opt.zero_grad(); loss.backward(); opt.step(); print(step, loss.item())
done(loss.detach(), net)
