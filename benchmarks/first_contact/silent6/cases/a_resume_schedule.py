"""From lightly-ai/lightly-train pull 301 (also PolymathicAI/the_well pull 63).
Wrong: the checkpoint has model and optimizer but not the scheduler: after the restart (here in one process) warm-up and decay begin again.
Could know: partly (a new scheduler begins at 0 with an optimizer whose state has 120 steps).
"""
import sys, io, math, torch, torch.nn as nn, torch.nn.functional as F
H = "--healthy" in sys.argv
torch.manual_seed(0); torch.set_num_threads(1)
w = torch.randn(8, 3)
def build():
    net = nn.Sequential(nn.Linear(8, 64), nn.GELU(), nn.Linear(64, 3)); opt = torch.optim.AdamW(net.parameters(), lr=5e-3)
    f = lambda s: min(1, (s + 1) / 20) * (1 if s < 20 else .5 * (1 + math.cos(math.pi * min(1, (s - 20) / 180))))
    return net, opt, torch.optim.lr_scheduler.LambdaLR(opt, f)
lrs = []
def run(net, opt, sch, steps, first):
    for i in range(steps):
        x = torch.randn(64, 8); loss = F.cross_entropy(net(x), (x @ w).argmax(1)); opt.zero_grad(); loss.backward(); opt.step(); sch.step(); lrs.append(opt.param_groups[0]["lr"])
        if i % 20 == 0: print(first + i, round(loss.item(), 4), lrs[-1])
net, opt, sch = build(); run(net, opt, sch, 120, 0)
f = io.BytesIO(); torch.save({"model": net.state_dict(), "opt": opt.state_dict(), "sched": sch.state_dict()}, f); f.seek(0)
ck = torch.load(f); net, opt, sch = build(); net.load_state_dict(ck["model"]); opt.load_state_dict(ck["opt"])
if H: sch.load_state_dict(ck["sched"])
run(net, opt, sch, 80, 120)
print("check: last rate before / 20 steps after the restart", lrs[119], lrs[139])
