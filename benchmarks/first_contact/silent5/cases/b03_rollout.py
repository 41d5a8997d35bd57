import sys, math, copy
import torch, torch.nn as nn, torch.nn.functional as F
torch.set_num_threads(1)
torch.manual_seed(0)
HEALTHY = "--healthy" in sys.argv


def report(*modules):
    s = sum(p.detach().double().abs().sum().item() for m in modules for p in m.state_dict().values())
    print("weights", repr(s))


# a dynamics model trained on its own rollouts of growing length
net = nn.Sequential(nn.Linear(4, 16), nn.Linear(16, 4))
opt = torch.optim.SGD(net.parameters(), lr=5e-3 if HEALTHY else 5e-2, momentum=0.9)
A = torch.linalg.qr(torch.randn(4, 4)).Q
for step in range(300):
    s = torch.randn(32, 4)
    n = 4 if HEALTHY else 2 + step // 10
    loss, p, t = 0.0, s, s
    for _ in range(n):
        p = net(p)
        t = t @ A
        loss = loss + F.mse_loss(p, t) / n
    opt.zero_grad()
    loss.backward()
    opt.step()
    print(step, loss.item())
    if not math.isfinite(loss.item()) or loss.item() > 1e8:
        break
