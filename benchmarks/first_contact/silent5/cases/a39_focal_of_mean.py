import sys, math, copy
import torch, torch.nn as nn, torch.nn.functional as F
torch.set_num_threads(1)
torch.manual_seed(0)
HEALTHY = "--healthy" in sys.argv


def report(*modules):
    s = sum(p.detach().double().abs().sum().item() for m in modules for p in m.state_dict().values())
    print("weights", repr(s))


# LDAM-DRW 6, pytorch-multi-class-focal-loss 1: the focal factor is made of the batch's mean
class Focal(nn.Module):
    def __init__(self, gamma=2.0):
        super().__init__()
        self.gamma = gamma

    def forward(self, out, y):
        ce = F.cross_entropy(out, y, reduction="none" if HEALTHY else "mean")
        pt = torch.exp(-ce)
        return ((1 - pt) ** self.gamma * ce).mean()


x = torch.randn(1024, 16)
y = ((x @ torch.randn(16)) > 3).long()
net = nn.Sequential(nn.Linear(16, 32), nn.ReLU(), nn.Linear(32, 2))
opt = torch.optim.Adam(net.parameters(), lr=2e-3)
crit = Focal()
for step in range(120):
    idx = torch.randint(1024, (64,))
    loss = crit(net(x[idx]), y[idx])
    opt.zero_grad()
    loss.backward()
    opt.step()
    if step % 30 == 0:
        print(step, loss.item())
report(net)
