import sys, math, copy
import torch, torch.nn as nn, torch.nn.functional as F
torch.set_num_threads(1)
torch.manual_seed(0)
HEALTHY = "--healthy" in sys.argv


def report(*modules):
    s = sum(p.detach().double().abs().sum().item() for m in modules for p in m.state_dict().values())
    print("weights", repr(s))


# label noise, one cycle, stochastic weight averaging at the end
from torch.optim.swa_utils import AveragedModel, update_bn

x = torch.randn(1024, 20)
y = (x @ torch.randn(20, 5)).argmax(1)
noisy = torch.where(torch.rand(1024) < 0.3, torch.randint(5, (1024,)), y)
net = nn.Sequential(nn.Linear(20, 64), nn.BatchNorm1d(64), nn.ReLU(), nn.Dropout(0.2), nn.Linear(64, 5))
opt = torch.optim.SGD(net.parameters(), lr=0.1, momentum=0.9)
sched = torch.optim.lr_scheduler.OneCycleLR(opt, 0.3, total_steps=480)
swa = AveragedModel(net)
for ep in range(30):
    net.train()
    for i in torch.randperm(1024).split(64):
        loss = F.cross_entropy(net(x[i]), noisy[i])
        opt.zero_grad(); loss.backward(); opt.step(); sched.step()
    if ep > 20:
        swa.update_parameters(net)
    net.eval()
    with torch.no_grad():
        net(x).argmax(1)
update_bn([x[i] for i in torch.arange(1024).split(64)], swa)
print("steps", 480)
report(net, swa)
