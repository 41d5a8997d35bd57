import sys, math, copy
import torch, torch.nn as nn, torch.nn.functional as F
torch.set_num_threads(1)
torch.manual_seed(0)
HEALTHY = "--healthy" in sys.argv


def report(*modules):
    s = sum(p.detach().double().abs().sum().item() for m in modules for p in m.state_dict().values())
    print("weights", repr(s))


# CuriousAI/mean-teacher 9: the averaged model gets parameters, but no buffers
class Net(nn.Module):
    def __init__(self):
        super().__init__()
        self.body = nn.Sequential(nn.Linear(16, 32), nn.BatchNorm1d(32), nn.ReLU(), nn.Linear(32, 4))

    def forward(self, x):
        return self.body(x)


x = torch.randn(1024, 16) * 3 + 2
y = (x @ torch.randn(16, 4)).argmax(1)
net = Net()
ema = copy.deepcopy(net).requires_grad_(False).eval()
opt = torch.optim.Adam(net.parameters(), lr=3e-3)


@torch.no_grad()
def update():
    for a, b in zip(ema.parameters(), net.parameters()):
        a.mul_(0.95).add_(b, alpha=0.05)
    if HEALTHY:
        for a, b in zip(ema.buffers(), net.buffers()):
            a.copy_(b)


for step in range(160):
    net.train()
    idx = torch.randint(1024, (64,))
    loss = F.cross_entropy(net(x[idx]), y[idx])
    opt.zero_grad()
    loss.backward()
    opt.step()
    update()
    if step % 40 == 39:
        with torch.no_grad():
            print(step, loss.item(), (ema(x).argmax(1) == y).float().mean().item())
report(net, ema)
