# no kept state (a log dir of its own): the optimizer is not loaded. V: plain | ema | sched | scaler | rng
import copy, os, sys, torch
from torch import nn
V, n = sys.argv[1], int(sys.argv[2])
torch.manual_seed(0)
m = nn.Linear(4, 2); avg = copy.deepcopy(m).requires_grad_(False); o = torch.optim.AdamW(m.parameters())
sc = torch.optim.lr_scheduler.LambdaLR(o, lambda s: 1.0); gs = torch.amp.GradScaler("cpu")
if os.path.exists("k.pt"):
    c = torch.load("k.pt"); m.load_state_dict(c["model"])
    if V == "ema": avg.load_state_dict(c["avg"])
    if V == "sched": sc.load_state_dict(c["sched"])
    if V == "name": state = c["opt"]
for i in range(n):
    l = m(torch.randn(4, 4)).square().mean()
    if V == "scaler": gs.scale(l).backward(); gs.step(o); gs.update()
    else: l.backward(); o.step()
    o.zero_grad(); sc.step()
torch.save({"model": m.state_dict(), "avg": avg.state_dict(), "opt": o.state_dict(), "sched": sc.state_dict()}, "k.pt")
print("end")
