import sys, math, copy
import torch, torch.nn as nn, torch.nn.functional as F
torch.set_num_threads(1)
torch.manual_seed(0)
HEALTHY = "--healthy" in sys.argv


def report(*modules):
    s = sum(p.detach().double().abs().sum().item() for m in modules for p in m.state_dict().values())
    print("weights", repr(s))


# unlearning by gradient ascent on the forget set, without a bound
x = torch.randn(1024, 16)
y = (x @ torch.randn(16, 4)).argmax(1)
net = nn.Sequential(nn.Linear(16, 48), nn.ReLU(), nn.Linear(48, 48), nn.ReLU(), nn.Linear(48, 4))
opt = torch.optim.Adam(net.parameters(), lr=1e-3)
for step in range(400):
    idx = torch.randint(1024, (48,))
    keep = F.cross_entropy(net(x[idx[:32]]), y[idx[:32]])
    forget = F.cross_entropy(net(x[idx[32:]] + 1), y[idx[32:]])
    if step < 80:
        loss = keep + forget
    else:
        loss = keep - (forget.clamp(max=1.0) if HEALTHY else forget)
    opt.zero_grad()
    loss.backward()
    opt.step()
    print(step, loss.item())
    if not math.isfinite(loss.item()) or abs(loss.item()) > 1e8:
        break
