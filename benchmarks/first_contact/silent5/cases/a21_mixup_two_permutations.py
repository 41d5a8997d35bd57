import sys, math, copy
import torch, torch.nn as nn, torch.nn.functional as F
torch.set_num_threads(1)
torch.manual_seed(0)
HEALTHY = "--healthy" in sys.argv


def report(*modules):
    s = sum(p.detach().double().abs().sum().item() for m in modules for p in m.state_dict().values())
    print("weights", repr(s))


# VMT 1: images and labels are mixed by different permutations
x = torch.randn(1024, 16)
y = F.one_hot((x @ torch.randn(16, 4)).argmax(1), 4).float()
net = nn.Sequential(nn.Linear(16, 64), nn.ReLU(), nn.Linear(64, 4))
opt = torch.optim.Adam(net.parameters(), lr=2e-3)
for step in range(150):
    idx = torch.randint(1024, (64,))
    lam = float(torch.distributions.Beta(0.4, 0.4).sample())
    p = torch.randperm(64)
    p2 = p if HEALTHY else torch.randperm(64)
    xb = lam * x[idx] + (1 - lam) * x[idx][p]
    yb = lam * y[idx] + (1 - lam) * y[idx][p2]
    loss = F.cross_entropy(net(xb), yb)
    opt.zero_grad()
    loss.backward()
    opt.step()
    if step % 30 == 0:
        print(step, loss.item())
report(net)
