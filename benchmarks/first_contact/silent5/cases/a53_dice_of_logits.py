import sys, math, copy
import torch, torch.nn as nn, torch.nn.functional as F
torch.set_num_threads(1)
torch.manual_seed(0)
HEALTHY = "--healthy" in sys.argv


def report(*modules):
    s = sum(p.detach().double().abs().sum().item() for m in modules for p in m.state_dict().values())
    print("weights", repr(s))


# tf_unet 15, villa 1488: the dice loss gets logits
net = nn.Sequential(nn.Conv2d(1, 8, 3, 1, 1), nn.ReLU(), nn.Conv2d(8, 1, 3, 1, 1))
opt = torch.optim.Adam(net.parameters(), lr=2e-3)


def dice(p, t, smooth=1.0):
    p, t = p.flatten(1), t.flatten(1)
    return 1 - ((2 * (p * t).sum(1) + smooth) / ((p * p).sum(1) + (t * t).sum(1) + smooth)).mean()


for step in range(80):
    t = (torch.rand(8, 1, 4, 4) < 0.3).float().repeat_interleave(4, 2).repeat_interleave(4, 3)
    x = t + 0.6 * torch.randn_like(t)
    logits = net(x)
    loss = F.binary_cross_entropy_with_logits(logits, t) + dice(torch.sigmoid(logits) if HEALTHY else logits, t)
    opt.zero_grad()
    loss.backward()
    opt.step()
    if step % 20 == 0:
        print(step, loss.item())
report(net)
