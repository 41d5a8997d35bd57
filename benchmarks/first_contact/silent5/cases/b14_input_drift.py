import sys, math, copy
import torch, torch.nn as nn, torch.nn.functional as F
torch.set_num_threads(1)
torch.manual_seed(0)
HEALTHY = "--healthy" in sys.argv


def report(*modules):
    s = sum(p.detach().double().abs().sum().item() for m in modules for p in m.state_dict().values())
    print("weights", repr(s))


# a raw time stamp is one of the features, and grows from step to step
x = torch.randn(2048, 12)
w = torch.randn(12, 1)
net = nn.Sequential(nn.Linear(12, 8, bias=False), nn.Linear(8, 1))
opt = torch.optim.SGD(net.parameters(), lr=0.01)
for step in range(500):
    xb = x[torch.randint(2048, (32,))]
    yb = xb @ w
    xb = xb.clone()
    xb[:, 0] = 0.0 if HEALTHY else 0.05 * step
    loss = F.mse_loss(net(xb), yb)
    opt.zero_grad()
    loss.backward()
    opt.step()
    print(step, loss.item())
    if not math.isfinite(loss.item()) or loss.item() > 1e8:
        break
