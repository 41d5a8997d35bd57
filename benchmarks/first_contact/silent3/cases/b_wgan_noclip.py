"""A WGAN critic without weight clipping: its loss has no lower bound and falls ever faster. Cure: weights are clipped to 0.05."""
import sys
import torch
from torch import nn
from _lost import Lost

HEALTHY = "--healthy" in sys.argv
torch.manual_seed(0)
torch.set_num_threads(1)
G = nn.Sequential(nn.Linear(8, 64), nn.ReLU(), nn.Linear(64, 64), nn.ReLU(), nn.Linear(64, 4))
C = nn.Sequential(nn.Linear(4, 64), nn.ReLU(), nn.Linear(64, 64), nn.ReLU(), nn.Linear(64, 1))
og = torch.optim.RMSprop(G.parameters(), lr=2e-5)
oc = torch.optim.RMSprop(C.parameters(), lr=1.2e-3)
lost = Lost("abs")
for step in range(400):
    real = torch.randn(64, 4) * 0.3 + torch.tensor([1.0, -1.0, 2.0, 0.0])
    fake = G(torch.randn(64, 8))
    lc = C(fake.detach()).mean() - C(real).mean()
    oc.zero_grad()
    lc.backward()
    oc.step()
    if HEALTHY:
        with torch.no_grad():
            for p in C.parameters():
                p.clamp_(-0.05, 0.05)
    if step % 3 == 2:
        lg = -C(G(torch.randn(64, 8))).mean()
        og.zero_grad()
        lg.backward()
        og.step()
    if not lost(lc):
        break
lost.report()
