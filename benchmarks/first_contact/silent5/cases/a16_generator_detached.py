import sys, math, copy
import torch, torch.nn as nn, torch.nn.functional as F
torch.set_num_threads(1)
torch.manual_seed(0)
HEALTHY = "--healthy" in sys.argv


def report(*modules):
    s = sum(p.detach().double().abs().sum().item() for m in modules for p in m.state_dict().values())
    print("weights", repr(s))


# image2reverb 37: in the generator's step the fake is detached before the discriminator
G = nn.Sequential(nn.Linear(8, 32), nn.ReLU(), nn.Linear(32, 16))
D = nn.Sequential(nn.Linear(16, 32), nn.LeakyReLU(0.2), nn.Linear(32, 1))
og = torch.optim.Adam(G.parameters(), lr=1e-3, betas=(0.5, 0.9))
od = torch.optim.Adam(D.parameters(), lr=1e-3, betas=(0.5, 0.9))
W = torch.randn(8, 16)
for step in range(150):
    c = torch.randn(32, 8)
    real = torch.tanh(c @ W) + 0.1 * torch.randn(32, 16)
    fake = G(c)
    od.zero_grad()
    d = F.mse_loss(D(real), torch.ones(32, 1)) + F.mse_loss(D(fake.detach()), torch.zeros(32, 1))
    d.backward()
    od.step()
    og.zero_grad()
    adv = F.mse_loss(D(fake if HEALTHY else fake.detach()), torch.ones(32, 1))
    g = adv + 10 * F.l1_loss(fake, real)
    g.backward()
    og.step()
    if step % 30 == 0:
        print(step, d.item(), g.item())
report(G, D)
