import sys, math, copy
import torch, torch.nn as nn, torch.nn.functional as F
torch.set_num_threads(1)
torch.manual_seed(0)
HEALTHY = "--healthy" in sys.argv


def report(*modules):
    s = sum(p.detach().double().abs().sum().item() for m in modules for p in m.state_dict().values())
    print("weights", repr(s))


# yolov5 292: the scheduler is created after the optimizer's state is loaded, and last_epoch only set: the rate jumps back
import io

x = torch.randn(512, 16)
y = (x @ torch.randn(16, 4)).argmax(1)
EPOCHS = 20
lf = lambda e: ((1 + math.cos(e * math.pi / EPOCHS)) / 2) * 0.9 + 0.1


def make():
    net = nn.Sequential(nn.Linear(16, 32), nn.ReLU(), nn.Linear(32, 4))
    return net, torch.optim.SGD(net.parameters(), lr=0.1, momentum=0.9)


def epoch(net, opt):
    for idx in torch.randperm(512).split(64):
        loss = F.cross_entropy(net(x[idx]), y[idx])
        opt.zero_grad()
        loss.backward()
        opt.step()
    return loss.item()


net, opt = make()
sched = torch.optim.lr_scheduler.LambdaLR(opt, lf)
for e in range(14):
    print(e, opt.param_groups[0]["lr"], epoch(net, opt))
    sched.step()
f = io.BytesIO()
torch.save({"model": net.state_dict(), "optimizer": opt.state_dict(), "epoch": 14, "scheduler": sched.state_dict()}, f)
f.seek(0)
ckpt = torch.load(f)
net, opt = make()
net.load_state_dict(ckpt["model"])
opt.load_state_dict(ckpt["optimizer"])
start = ckpt["epoch"]
if HEALTHY:
    sched = torch.optim.lr_scheduler.LambdaLR(opt, lf, last_epoch=start - 1)
else:
    for g in opt.param_groups:
        g["initial_lr"] = 0.1
    sched = torch.optim.lr_scheduler.LambdaLR(opt, lf)
    sched.last_epoch = start - 1
for e in range(start, EPOCHS):
    print(e, opt.param_groups[0]["lr"], epoch(net, opt))
    sched.step()
report(net)
