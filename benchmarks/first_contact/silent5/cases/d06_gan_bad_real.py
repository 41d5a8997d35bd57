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
G = nn.Sequential(nn.Linear(4, 24), nn.LayerNorm(24), nn.ReLU(), nn.Linear(24, 6))
D = nn.Sequential(nn.Linear(6, 24), nn.LeakyReLU(0.2), nn.Linear(24, 1))
og, od = torch.optim.Adam(G.parameters(), 1e-3, (0.5, 0.9)), torch.optim.Adam(D.parameters(), 1e-3, (0.5, 0.9))
for step in range(60):
    real = torch.randn(16, 6) + 2
    if step in (8, 9, 33):
        real[2] = float("inf")
    fake = G(torch.randn(16, 4))
    d = F.softplus(-D(real)).mean() + F.softplus(D(fake.detach())).mean()
    od.zero_grad()
    d.backward()
    if not (DROP and bad(od)): od.step()
    g = F.softplus(-D(fake)).mean()
    og.zero_grad()
    g.backward()
    if not (DROP and bad(og)): og.step()
bits(G, D)
