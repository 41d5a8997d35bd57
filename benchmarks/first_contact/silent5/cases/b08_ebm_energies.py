import sys, math, copy
import torch, torch.nn as nn, torch.nn.functional as F
torch.set_num_threads(1)
torch.manual_seed(0)
HEALTHY = "--healthy" in sys.argv


def report(*modules):
    s = sum(p.detach().double().abs().sum().item() for m in modules for p in m.state_dict().values())
    print("weights", repr(s))


# an energy model by contrastive divergence, no penalty on the energies' size
E = nn.Sequential(nn.Linear(6, 48), nn.SiLU(), nn.Linear(48, 48), nn.SiLU(), nn.Linear(48, 1))
opt = torch.optim.Adam(E.parameters(), lr=1e-3)
for step in range(400):
    pos = torch.randn(32, 6) * 0.3 + 1
    neg = torch.randn(32, 6).requires_grad_(True)
    z = neg
    for _ in range(5):
        g, = torch.autograd.grad(E(z).sum(), z)
        z = (z - 0.1 * g.clamp(-1, 1) + 0.05 * torch.randn_like(z)).detach().requires_grad_(True)
    ep, en = E(pos), E(z.detach())
    loss = ep.mean() - en.mean() + ((ep ** 2 + en ** 2).mean() if HEALTHY else 0.0)
    opt.zero_grad()
    loss.backward()
    opt.step()
    print(step, loss.item())
    if not math.isfinite(loss.item()) or abs(loss.item()) > 1e8:
        break
