import sys, math, copy
import torch, torch.nn as nn, torch.nn.functional as F
torch.set_num_threads(1)
torch.manual_seed(0)
HEALTHY = "--healthy" in sys.argv


def report(*modules):
    s = sum(p.detach().double().abs().sum().item() for m in modules for p in m.state_dict().values())
    print("weights", repr(s))


DROP = "--drop" in sys.argv
import hashlib
def bits(*ms):
    h = hashlib.sha256()
    for m in ms:
        for k, v in m.state_dict().items():
            h.update(k.encode()); h.update(v.detach().contiguous().cpu().numpy().tobytes())
    print("BITS", h.hexdigest())
def bad(opt):
    return any(p.grad is not None and not p.grad.isfinite().all() for g in opt.param_groups for p in g["params"])
from torch.nn.utils.parametrizations import spectral_norm
class Enc(nn.Module):
    def __init__(self):
        super().__init__()
        self.f = nn.Sequential(spectral_norm(nn.Linear(6, 24)), nn.BatchNorm1d(24), nn.ReLU(), nn.Linear(24, 8))
        self.register_buffer("center", torch.zeros(8))
    def forward(self, x):
        z = self.f(x)
        if self.training:
            self.center.mul_(0.9).add_(z.detach().mean(0), alpha=0.1)
        return z - self.center.clone()
net = Enc()
opt = torch.optim.NAdam(net.parameters(), lr=2e-3)
for step in range(50):
    a = torch.randn(16, 6)
    b = a + 0.1 * torch.randn(16, 6)
    if step in (5, 22, 23):
        b[4] = float("inf")  # bad only in the second call
    before = [t.clone() for t in net.buffers()]
    za, zb = F.normalize(net(a), dim=1), F.normalize(net(b), dim=1)
    loss = F.cross_entropy(za @ zb.T / 0.3, torch.arange(16))
    opt.zero_grad()
    loss.backward()
    if DROP and bad(opt):
        with torch.no_grad():
            for t, o in zip(net.buffers(), before): t.copy_(o)
    else:
        opt.step()
bits(net)
