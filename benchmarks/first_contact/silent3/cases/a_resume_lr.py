"""A run resumes: the optimizer's state is loaded, then a new LambdaLR sets the rate back to the schedule's first value (warm-up again).
Source: https://github.com/ultralytics/yolov5/issues/292
Truth: the rate at the first resumed step is that of epoch 0, not of epoch 60.
Could a tool know: partly: the loaded state names another rate than the optimizer has at its first step.
"""
import math
import sys
import torch
from torch import nn

HEALTHY = "--healthy" in sys.argv
torch.manual_seed(0)
torch.set_num_threads(1)
w = torch.randn(10, 3)


def lf(x):
    return ((1 + math.cos(x * math.pi / 120)) / 2) * 0.9 + 0.1


def make():
    model = nn.Sequential(nn.Linear(10, 48), nn.ReLU(), nn.Linear(48, 3))
    opt = torch.optim.SGD(model.parameters(), lr=0.1, momentum=0.9, nesterov=True)
    return model, opt


def train(model, opt, sched, steps):
    for _ in range(steps):
        x = torch.randn(64, 10)
        loss = nn.functional.cross_entropy(model(x), (x @ w).argmax(1))
        opt.zero_grad()
        loss.backward()
        opt.step()
        sched.step()
    return loss.item()


model, opt = make()
sched = torch.optim.lr_scheduler.LambdaLR(opt, lf)
train(model, opt, sched, 90)
ckpt = {"model": model.state_dict(), "opt": opt.state_dict(), "sched": sched.state_dict(), "epoch": 90}
torch.save(ckpt, f"./resume_{HEALTHY}.pt")
ckpt = torch.load(f"./resume_{HEALTHY}.pt")
model, opt = make()
model.load_state_dict(ckpt["model"])
if HEALTHY:
    sched = torch.optim.lr_scheduler.LambdaLR(opt, lf)
    sched.load_state_dict(ckpt["sched"])
    opt.load_state_dict(ckpt["opt"])
else:
    opt.load_state_dict(ckpt["opt"])
    sched = torch.optim.lr_scheduler.LambdaLR(opt, lf)
print(f"rate saved {ckpt['opt']['param_groups'][0]['lr']:.4f} rate resumed {opt.param_groups[0]['lr']:.4f}")
print("loss", train(model, opt, sched, 30))
