import sys, math, copy
import torch, torch.nn as nn, torch.nn.functional as F
torch.set_num_threads(1)
torch.manual_seed(0)
HEALTHY = "--healthy" in sys.argv


def report(*modules):
    s = sum(p.detach().double().abs().sum().item() for m in modules for p in m.state_dict().values())
    print("weights", repr(s))


# heteroscedastic regression: the predicted variance of clean data falls without bound
class Net(nn.Module):
    def __init__(self):
        super().__init__()
        self.body, self.mu = nn.Linear(8, 32), nn.Linear(40, 1)
        self.log_std = nn.Linear(32, 1)

    def forward(self, x):
        h = F.relu(self.body(x))
        return self.mu(torch.cat([x, h], 1)).squeeze(1), self.log_std(h).squeeze(1)


net = Net()
opt = torch.optim.Adam(net.parameters(), lr=1e-2)
w = torch.randn(8)
for step in range(600):
    x = torch.randn(64, 8)
    y = x @ w
    mu, ls = net(x)
    if HEALTHY:
        ls = ls.clamp(-1, 3)
    loss = (0.5 * ((y - mu) / ls.exp()) ** 2 + ls).mean()
    opt.zero_grad()
    loss.backward()
    opt.step()
    print(step, loss.item())
    if not math.isfinite(loss.item()) or abs(loss.item()) > 1e8:
        break
