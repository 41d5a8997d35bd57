import sys, math, copy
import torch, torch.nn as nn, torch.nn.functional as F
torch.set_num_threads(1)
torch.manual_seed(0)
HEALTHY = "--healthy" in sys.argv


def report(*modules):
    s = sum(p.detach().double().abs().sum().item() for m in modules for p in m.state_dict().values())
    print("weights", repr(s))


# a fast-weight memory that is carried over batches and is written with a gain above one
class Mem(nn.Module):
    def __init__(self):
        super().__init__()
        self.k, self.v, self.o = nn.Linear(8, 16), nn.Linear(8, 16), nn.Linear(16, 4)
        self.register_buffer("m", torch.zeros(16, 16))

    def forward(self, x):
        k, v = self.k(x), self.v(x)
        y = self.o(k @ self.m.clone() + v)
        with torch.no_grad():
            self.m.mul_(0.9 if HEALTHY else 1.03).add_(k.T @ v / len(x), alpha=0.1 if HEALTHY else 0.6)
        return y


net = Mem()
opt = torch.optim.SGD(net.parameters(), lr=5e-3)
w = torch.randn(8, 4)
for step in range(500):
    x = torch.randn(32, 8)
    loss = F.mse_loss(net(x), x @ w)
    opt.zero_grad()
    loss.backward()
    opt.step()
    print(step, loss.item())
    if not math.isfinite(loss.item()) or loss.item() > 1e8:
        break
