"""The net is restored and the criterion's own weights, trained by the same optimizer, are not."""
import os, sys

import torch
from torch import nn

torch.manual_seed(0)
net, centers = nn.Linear(8, 16), nn.Linear(16, 4)
opt = torch.optim.Adam([*net.parameters(), *centers.parameters()], lr=0.02)
n = 0
if os.path.exists("c.pt"):
    c = torch.load("c.pt")
    net.load_state_dict(c["net"]), opt.load_state_dict(c["opt"])
    if "--right" in sys.argv:
        centers.load_state_dict(c["centers"])
    n = c["n"]
while n < int(os.environ.get("END", "50")):
    g = torch.Generator().manual_seed(n)
    loss = nn.functional.cross_entropy(centers(net(torch.randn(16, 8, generator=g))), torch.randint(0, 4, (16,), generator=g))
    loss.backward(), opt.step(), opt.zero_grad()
    n += 1
    print(n, f"{loss.item():.9f}", flush=True)
    if n % 5 == 0:
        torch.save({"net": net.state_dict(), "centers": centers.state_dict(), "opt": opt.state_dict(), "n": n}, "c.pt")
