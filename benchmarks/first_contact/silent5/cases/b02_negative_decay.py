import sys, math, copy
import torch, torch.nn as nn, torch.nn.functional as F
torch.set_num_threads(1)
torch.manual_seed(0)
HEALTHY = "--healthy" in sys.argv


def report(*modules):
    s = sum(p.detach().double().abs().sum().item() for m in modules for p in m.state_dict().values())
    print("weights", repr(s))


# the weight decay has the wrong sign: weights grow exponentially
x = torch.randn(1024, 16)
y = x @ torch.randn(16, 1)
net = nn.Sequential(nn.Linear(16, 32), nn.Tanh(), nn.Linear(32, 32), nn.Tanh(), nn.Linear(32, 1))
opt = torch.optim.SGD(net.parameters(), lr=0.02)
wd = 0.5
for step in range(600):
    idx = torch.randint(1024, (32,))
    loss = F.mse_loss(net(x[idx]), y[idx])
    opt.zero_grad()
    loss.backward()
    with torch.no_grad():
        for p in net.parameters():
            p.mul_(1 - 0.02 * wd * 0.1 if HEALTHY else 1 + 0.02 * wd)
    opt.step()
    print(step, loss.item())
    if not math.isfinite(loss.item()) or loss.item() > 1e8:
        break
