# a sweep in one folder: the second run has another learning rate and the same seed, from scratch
import hashlib, os, sys
import torch
from torch import nn
stop = int(sys.argv[sys.argv.index("--stop") + 1]); trial = len([f for f in os.listdir(".") if f.startswith("trial")])
torch.manual_seed(10); net = nn.Sequential(nn.Linear(6, 24), nn.ReLU(), nn.Linear(24, 6)); opt = torch.optim.Adam(net.parameters(), [1e-2, 3e-3, 1e-3][trial]); torch.save({"net": net.state_dict(), "opt": opt.state_dict()}, "init.pt")
for n in range(stop):
    x = torch.randn(8, 6, generator=torch.Generator().manual_seed(n)); loss = (net(x) - x).square().mean(); opt.zero_grad(); loss.backward(); opt.step(); print(n, repr(loss.item()))
torch.save(net.state_dict(), f"trial{trial}.pt")
print("end", hashlib.sha256(b"".join(p.detach().numpy().tobytes() for p in net.parameters())).hexdigest()[:16])
