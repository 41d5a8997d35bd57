# exact: own loop with dropout, random order of a numpy permutation, all three random states, a ReduceLROnPlateau
import hashlib, os, random, sys
import numpy as np, torch
from torch import nn
stop = int(sys.argv[sys.argv.index("--stop") + 1]) if "--stop" in sys.argv else 1000
random.seed(1); np.random.seed(1); torch.manual_seed(1); net = nn.Sequential(nn.Linear(6, 24), nn.ReLU(), nn.Dropout(0.3), nn.Linear(24, 6)); opt = torch.optim.Adam(net.parameters(), 1e-2); sch = torch.optim.lr_scheduler.ReduceLROnPlateau(opt, patience=2); X = torch.randn(100, 6); n = 0
if os.path.exists("all.pt"):
    s = torch.load("all.pt", weights_only=False); net.load_state_dict(s["net"]); opt.load_state_dict(s["opt"]); sch.load_state_dict(s["sch"]); n = s["n"]; random.setstate(s["py"]); np.random.set_state(s["np"]); torch.set_rng_state(s["torch"])
while n < stop:
    x = X[np.random.permutation(100)[:8]] * random.choice([1, -1]); loss = (net(x) - x).square().mean(); opt.zero_grad(); loss.backward(); opt.step(); sch.step(loss.item()); n += 1; print(n, repr(loss.item()), flush=True)
    if n % 5 == 0: torch.save({"net": net.state_dict(), "opt": opt.state_dict(), "sch": sch.state_dict(), "n": n, "py": random.getstate(), "np": np.random.get_state(), "torch": torch.get_rng_state()}, "all.pt")
print("end", hashlib.sha256(b"".join(p.detach().numpy().tobytes() for p in net.parameters())).hexdigest()[:16])
