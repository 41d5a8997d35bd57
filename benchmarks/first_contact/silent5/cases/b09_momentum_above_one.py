import sys, math, copy
import torch, torch.nn as nn, torch.nn.functional as F
torch.set_num_threads(1)
torch.manual_seed(0)
HEALTHY = "--healthy" in sys.argv


def report(*modules):
    s = sum(p.detach().double().abs().sum().item() for m in modules for p in m.state_dict().values())
    print("weights", repr(s))


# momentum is raised in steps and passes 1
x = torch.randn(1024, 16)
y = (x @ torch.randn(16, 4)).argmax(1)
net = nn.Sequential(nn.Linear(16, 48), nn.Tanh(), nn.Linear(48, 48), nn.Tanh(), nn.Linear(48, 4))
opt = torch.optim.SGD(net.parameters(), lr=5e-3, momentum=0.8)
for step in range(500):
    if step % 20 == 19:
        for g in opt.param_groups:
            g["momentum"] = min(g["momentum"] + 0.02, 0.95) if HEALTHY else g["momentum"] + 0.02
    idx = torch.randint(1024, (32,))
    loss = F.cross_entropy(net(x[idx]), y[idx])
    opt.zero_grad()
    loss.backward()
    opt.step()
    print(step, loss.item())
    if not math.isfinite(loss.item()) or loss.item() > 1e8:
        break
