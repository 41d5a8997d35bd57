import sys, math, copy
import torch, torch.nn as nn, torch.nn.functional as F
torch.set_num_threads(1)
torch.manual_seed(0)
HEALTHY = "--healthy" in sys.argv


def report(*modules):
    s = sum(p.detach().double().abs().sum().item() for m in modules for p in m.state_dict().values())
    print("weights", repr(s))


# CutMix-PyTorch 1: the box is clipped at the border, lambda is not computed anew
net = nn.Sequential(nn.Conv2d(1, 8, 3, 2), nn.ReLU(), nn.Conv2d(8, 16, 3, 2), nn.ReLU(), nn.Flatten(), nn.Linear(144, 4))
opt = torch.optim.Adam(net.parameters(), lr=1e-3)
protos = torch.randn(4, 1, 16, 16)
for step in range(100):
    y = torch.randint(4, (16,))
    x = protos[y] + 0.5 * torch.randn(16, 1, 16, 16)
    lam = float(torch.rand(()))
    side = int(16 * math.sqrt(1 - lam))
    cy, cx = int(torch.randint(16, ())), int(torch.randint(16, ()))
    y1, y2, x1, x2 = max(cy - side // 2, 0), min(cy + side // 2, 16), max(cx - side // 2, 0), min(cx + side // 2, 16)
    p = torch.randperm(16)
    x = x.clone()
    x[:, :, y1:y2, x1:x2] = x[p][:, :, y1:y2, x1:x2]
    if HEALTHY:
        lam = 1 - (y2 - y1) * (x2 - x1) / 256
    out = net(x)
    loss = lam * F.cross_entropy(out, y) + (1 - lam) * F.cross_entropy(out, y[p])
    opt.zero_grad()
    loss.backward()
    opt.step()
    if step % 20 == 0:
        print(step, loss.item())
report(net)
