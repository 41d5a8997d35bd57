import sys, math, copy
import torch, torch.nn as nn, torch.nn.functional as F
torch.set_num_threads(1)
torch.manual_seed(0)
HEALTHY = "--healthy" in sys.argv


def report(*modules):
    s = sum(p.detach().double().abs().sum().item() for m in modules for p in m.state_dict().values())
    print("weights", repr(s))


# a Wasserstein critic that nothing keeps Lipschitz (healthy: weights are clipped)
G = nn.Sequential(nn.Linear(4, 32), nn.ReLU(), nn.Linear(32, 12))
D = nn.Sequential(nn.Linear(12, 48), nn.LeakyReLU(0.2), nn.Linear(48, 48), nn.LeakyReLU(0.2), nn.Linear(48, 1))
og, od = torch.optim.RMSprop(G.parameters(), 5e-4), torch.optim.RMSprop(D.parameters(), 5e-4)
W = torch.randn(3, 12)
for step in range(400):
    real = torch.tanh(torch.randn(32, 3) @ W)
    d = D(G(torch.randn(32, 4)).detach()).mean() - D(real).mean()
    od.zero_grad()
    d.backward()
    od.step()
    if HEALTHY:
        with torch.no_grad():
            for p in D.parameters():
                p.clamp_(-0.05, 0.05)
    g = -D(G(torch.randn(32, 4))).mean()
    og.zero_grad()
    g.backward()
    og.step()
    print(step, d.item())
    if not math.isfinite(d.item()) or abs(d.item()) > 1e8:
        break
