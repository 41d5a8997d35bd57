"""lucidrains/performer-pytorch (FAVOR+ features without the stabiliser): exp overflows inside an activation checkpoint
TRUTH op=aten.exp reason=exp overflow"""
import sys
import torch
from torch import nn
import torch.nn.functional as F
from _util import done
CURED = "--cured" in sys.argv
torch.manual_seed(0); torch.set_num_threads(1)

from torch.utils.checkpoint import checkpoint
class Favor(nn.Module):
    def __init__(self, d=16, m=32):
        super().__init__(); self.q, self.k, self.v = nn.Linear(d, d), nn.Linear(d, d), nn.Linear(d, d); self.register_buffer("w", torch.randn(m, d))
    def phi(self, x):
        u = x @ self.w.T
        if CURED: u = u - u.amax((-1, -2), keepdim=True)
        return torch.exp(u) + 1e-6  # FAULT
    def forward(self, x):
        q, k = self.phi(self.q(x)), self.phi(self.k(x)); kv = k.transpose(1, 2) @ self.v(x)
        return x + (q @ kv) / (q * k.sum(1, keepdim=True)).sum(-1, keepdim=True)
class Net(nn.Module):
    def __init__(self):
        super().__init__(); self.b = nn.ModuleList(Favor() for _ in range(2)); self.o = nn.Linear(16, 16)
    def forward(self, x):
        for b in self.b: x = checkpoint(b, x, use_reentrant=False)
        return self.o(x)
net = Net(); opt = torch.optim.Adam(net.parameters(), 1e-3)
for step in range(4):
    x = torch.randn(2, 10, 16)
    if step == 2: x[0] *= 40
    loss = F.smooth_l1_loss(net(x), x); opt.zero_grad(); loss.backward(); opt.step(); print(step, loss.item())
done(loss.detach(), net)
