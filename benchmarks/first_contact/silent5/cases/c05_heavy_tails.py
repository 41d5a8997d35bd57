import sys, math, copy
import torch, torch.nn as nn, torch.nn.functional as F
torch.set_num_threads(1)
torch.manual_seed(0)
HEALTHY = "--healthy" in sys.argv


def report(*modules):
    s = sum(p.detach().double().abs().sum().item() for m in modules for p in m.state_dict().values())
    print("weights", repr(s))


# regression with Cauchy noise under the squared loss, clipped
w = torch.randn(12)
net = nn.Sequential(nn.Linear(12, 32), nn.Tanh(), nn.Linear(32, 1))
opt = torch.optim.SGD(net.parameters(), lr=0.02, momentum=0.9)
dist = torch.distributions.Cauchy(0.0, 0.3)
for step in range(600):
    x = torch.randn(16, 12)
    y = torch.tanh(x @ w) + dist.sample((16,)).clamp(-60, 60)
    loss = F.mse_loss(net(x).squeeze(1), y)
    opt.zero_grad(); loss.backward()
    nn.utils.clip_grad_norm_(net.parameters(), 1.0)
    opt.step()
print("steps", 600)
report(net)
