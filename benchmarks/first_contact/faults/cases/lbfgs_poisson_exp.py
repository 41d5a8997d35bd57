"""LBFGS without a line search on a Poisson likelihood: a step goes far out, and exp overflows.
Source: pytorch/pytorch#5953, levimcclenny/SA-PINNs#9."""
import sys
import torch
from torch import nn

CURED = "--cured" in sys.argv
torch.manual_seed(0)
net = nn.Sequential(nn.Linear(3, 8), nn.ReLU(), nn.Linear(8, 1))
x = torch.randn(64, 3) * 6
y = torch.poisson(torch.exp(x[:, :1] * 0.3).clamp(max=50))
opt = torch.optim.LBFGS(net.parameters(), lr=0.3 if CURED else 3000.0, max_iter=6, line_search_fn="strong_wolfe" if CURED else None)


def closure():
    opt.zero_grad()
    log_rate = net(x)
    loss = (torch.exp(log_rate) - y * log_rate).mean()  # FAULT
    loss.backward()
    return loss


for step in range(3):
    print(step, opt.step(closure).item())
