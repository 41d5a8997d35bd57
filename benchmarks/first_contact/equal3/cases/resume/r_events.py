"""Callbacks on a list, fp16 with GradScaler, schedule by callable, criterion with weights, teacher copy. --lose scaler | schedule | criterion | teacher | lr | late-scheduler"""
import copy, hashlib, os, random, sys

import torch
from torch import nn

lose = sys.argv[sys.argv.index("--lose") + 1] if "--lose" in sys.argv else ""
END = int(os.environ.get("END", "100"))
random.seed(0)
torch.manual_seed(1)


class Margin(nn.Module):
    def __init__(self):
        super().__init__()
        self.centers, self.scale = nn.Parameter(torch.randn(4, 16) * 0.3), nn.Parameter(torch.tensor(2.0))

    def forward(self, z, y):
        return nn.functional.cross_entropy(self.scale * z @ self.centers.T, y)


net = nn.Sequential(nn.Linear(8, 32), nn.LayerNorm(32), nn.ReLU(), nn.Linear(32, 16))
criterion = Margin()
teacher = copy.deepcopy(net).requires_grad_(False)
opt = torch.optim.Adam([*net.parameters(), *criterion.parameters()], lr=0.02)
scaler = torch.amp.GradScaler("cpu", init_scale=1024.0, growth_interval=3)
ramp = lambda n: min(1.0, (n + 1) / 12)
sched = torch.optim.lr_scheduler.LambdaLR(opt, ramp)
state = {"n": 0}


def restore():
    if not os.path.exists("run.ckpt"):
        return
    c = torch.load("run.ckpt")
    net.load_state_dict(c["net"])
    if lose != "criterion":
        criterion.load_state_dict(c["criterion"])
    if lose == "teacher":
        teacher.load_state_dict(c["net"])
    else:
        teacher.load_state_dict(c["teacher"])
    opt.load_state_dict(c["opt"])
    if lose == "lr":
        for g in opt.param_groups:
            g["lr"] = 0.02
    if lose not in ("schedule", "lr", "late-scheduler"):
        sched.load_state_dict(c["sched"])
    if lose == "late-scheduler":  # made after the optimizer was loaded
        globals()["sched"] = torch.optim.lr_scheduler.LambdaLR(opt, ramp)
    if lose != "scaler":
        scaler.load_state_dict(c["scaler"])
    state["n"] = c["n"]


def keep():
    if state["n"] % 6 == 0:
        torch.save({"net": net.state_dict(), "criterion": criterion.state_dict(), "teacher": teacher.state_dict(), "opt": opt.state_dict(),
                    "sched": sched.state_dict(), "scaler": scaler.state_dict(), "n": state["n"]}, "run.ckpt.tmp")
        os.replace("run.ckpt.tmp", "run.ckpt")


def follow():
    with torch.no_grad():
        for a, b in zip(teacher.parameters(), net.parameters()):
            a.lerp_(b, 0.1)


after = [follow, keep]
restore()
while state["n"] < END:
    g = torch.Generator().manual_seed(state["n"] + 50)
    x, y = torch.randn(12, 8, generator=g), torch.randint(0, 4, (12,), generator=g)
    with torch.autocast("cpu", torch.float16):
        z = net(x)
    with torch.no_grad():
        target = teacher(x)
    loss = criterion(z.float(), y) + 0.1 * (z.float() - target).square().mean()
    scaler.scale(loss).backward()
    scaler.step(opt)
    scaler.update()
    sched.step()
    opt.zero_grad(set_to_none=True)
    state["n"] += 1
    sha = hashlib.sha256(b"".join(p.detach().numpy().tobytes() for m in (net, criterion) for p in m.parameters())).hexdigest()[:10]
    print(f"r0 step {state['n']} loss {loss.item():.7f} {sha} scale {scaler.get_scale()}", flush=True)
    for f in after:
        f()
