# a folder of its own each time: is the question about the checkpoint asked? KEY is the optimizer's key
import os, sys, torch
from torch import nn
key, n = sys.argv[1], int(sys.argv[2])
torch.manual_seed(0)
m = nn.Linear(4, 2); o = torch.optim.AdamW(m.parameters())
if os.path.exists("k.pt"):
    c = torch.load("k.pt"); m.load_state_dict(c["model"])
for i in range(n):
    m(torch.randn(4, 4)).square().mean().backward(); o.step(); o.zero_grad()
torch.save({"model": m.state_dict(), key: o.state_dict()}, "k.pt")
