# resumed on purpose with a lower learning rate (as after a spike), everything else goes on
import hashlib, os, sys
import torch
from torch import nn
stop = int(sys.argv[sys.argv.index("--stop") + 1])
torch.manual_seed(14); net = nn.Sequential(nn.Linear(6, 24), nn.ReLU(), nn.Linear(24, 6)); opt = torch.optim.AdamW(net.parameters(), 1e-2); n = 0
if os.path.exists("c.pt"):
    c = torch.load("c.pt"); net.load_state_dict(c["net"]); opt.load_state_dict(c["opt"]); n = c["n"]
    for g in opt.param_groups: g["lr"] = 1e-3
while n < stop:
    x = torch.randn(8, 6, generator=torch.Generator().manual_seed(n)); loss = (net(x) - x).square().mean(); opt.zero_grad(); loss.backward(); opt.step(); n += 1; print(n, repr(loss.item()), flush=True)
    if n % 5 == 0: torch.save({"net": net.state_dict(), "opt": opt.state_dict(), "n": n}, "c.pt")
print("end", hashlib.sha256(b"".join(p.detach().numpy().tobytes() for p in net.parameters())).hexdigest()[:16])
