# a second phase on purpose: Adam first, then (--phase2 is implied by the finished first phase) SGD with momentum from its weights, as in SWATS
import hashlib, os, sys
import torch
from torch import nn
stop = int(sys.argv[sys.argv.index("--stop") + 1])
torch.manual_seed(7); net = nn.Sequential(nn.Linear(6, 24), nn.GELU(), nn.Linear(24, 6)); second = os.path.exists("phase1.pt"); n = 0
if second: c = torch.load("phase1.pt"); net.load_state_dict(c["net"]); n = c["n"]; opt = torch.optim.SGD(net.parameters(), 0.02, momentum=0.9)
else: opt = torch.optim.Adam(net.parameters(), 1e-2)
while n < stop:
    x = torch.randn(8, 6, generator=torch.Generator().manual_seed(n)); loss = (net(x) - x.sin()).square().mean(); opt.zero_grad(); loss.backward(); opt.step(); n += 1; print(n, repr(loss.item()), flush=True)
if not second: torch.save({"net": net.state_dict(), "adam": opt.state_dict(), "n": n}, "phase1.pt")
print("end", hashlib.sha256(b"".join(p.detach().numpy().tobytes() for p in net.parameters())).hexdigest()[:16])
