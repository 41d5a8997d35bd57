import sys, math, copy
import torch, torch.nn as nn, torch.nn.functional as F
torch.set_num_threads(1)
torch.manual_seed(0)
HEALTHY = "--healthy" in sys.argv


def report(*modules):
    s = sum(p.detach().double().abs().sum().item() for m in modules for p in m.state_dict().values())
    print("weights", repr(s))


# ViS4mer 4: ReduceLROnPlateau(mode="min") is given an accuracy
x = torch.randn(1024, 16)
y = (x @ torch.randn(16, 4)).argmax(1)
net = nn.Sequential(nn.Linear(16, 32), nn.ReLU(), nn.Linear(32, 4))
opt = torch.optim.SGD(net.parameters(), lr=0.1)
sched = torch.optim.lr_scheduler.ReduceLROnPlateau(opt, mode="max" if HEALTHY else "min", patience=1, factor=0.2)
for epoch in range(14):
    net.train()
    for idx in torch.randperm(896).split(64):
        loss = F.cross_entropy(net(x[idx]), y[idx])
        opt.zero_grad()
        loss.backward()
        opt.step()
    net.eval()
    with torch.no_grad():
        acc = (net(x[896:]).argmax(1) == y[896:]).float().mean().item()
    sched.step(acc)
    print(epoch, loss.item(), acc, opt.param_groups[0]["lr"])
report(net)
