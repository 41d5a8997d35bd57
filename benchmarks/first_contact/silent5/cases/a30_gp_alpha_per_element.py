import sys, math, copy
import torch, torch.nn as nn, torch.nn.functional as F
torch.set_num_threads(1)
torch.manual_seed(0)
HEALTHY = "--healthy" in sys.argv


def report(*modules):
    s = sum(p.detach().double().abs().sum().item() for m in modules for p in m.state_dict().values())
    print("weights", repr(s))


# PyTorch-GAN 5: the interpolation draws a number for each element instead of each sample
G = nn.Sequential(nn.Linear(4, 32), nn.ReLU(), nn.Linear(32, 12))
D = nn.Sequential(nn.Linear(12, 32), nn.LeakyReLU(0.2), nn.Linear(32, 1))
og, od = torch.optim.Adam(G.parameters(), 1e-3, (0.0, 0.9)), torch.optim.Adam(D.parameters(), 1e-3, (0.0, 0.9))
W = torch.randn(3, 12)
for step in range(160):
    real = torch.tanh(torch.randn(32, 3) @ W)
    fake = G(torch.randn(32, 4)).detach()
    a = torch.rand(32, 1) if HEALTHY else torch.rand(32, 12)
    mid = (a * real + (1 - a) * fake).requires_grad_(True)
    g, = torch.autograd.grad(D(mid).sum(), mid, create_graph=True)
    d = D(fake).mean() - D(real).mean() + 10 * ((g.norm(2, 1) - 1) ** 2).mean()
    od.zero_grad()
    d.backward()
    od.step()
    if step % 4 == 3:
        gl = -D(G(torch.randn(32, 4))).mean()
        og.zero_grad()
        gl.backward()
        og.step()
    if step % 40 == 0:
        print(step, d.item())
report(G, D)
