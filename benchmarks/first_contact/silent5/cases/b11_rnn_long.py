import sys, math, copy
import torch, torch.nn as nn, torch.nn.functional as F
torch.set_num_threads(1)
torch.manual_seed(0)
HEALTHY = "--healthy" in sys.argv


def report(*modules):
    s = sum(p.detach().double().abs().sum().item() for m in modules for p in m.state_dict().values())
    print("weights", repr(s))


# an RNN without clipping under a curriculum of longer and longer sequences: a rate that was stable no longer is
class Net(nn.Module):
    def __init__(self):
        super().__init__()
        self.i, self.h, self.o = nn.Linear(3, 24), nn.Linear(24, 24, bias=False), nn.Linear(24, 1)
        nn.init.eye_(self.h.weight)

    def forward(self, x):
        h = torch.zeros(x.shape[0], 24)
        for t in range(x.shape[1]):
            h = F.relu(self.i(x[:, t]) + self.h(h))
        return self.o(h)


net = Net()
opt = torch.optim.SGD(net.parameters(), lr=2e-3)
for step in range(300):
    x = torch.randn(32, 5 if HEALTHY else 5 + step // 6, 3)
    y = x.sum((1, 2))[:, None]
    loss = F.mse_loss(net(x), y)
    opt.zero_grad()
    loss.backward()
    if HEALTHY:
        nn.utils.clip_grad_norm_(net.parameters(), 1.0)
    opt.step()
    print(step, loss.item())
    if not math.isfinite(loss.item()) or loss.item() > 1e8:
        break
