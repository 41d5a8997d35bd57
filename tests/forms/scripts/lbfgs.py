"""The textbook's L-BFGS: the model is called for the first time in the closure, and the fault is in a later run of it."""

import torch
from torch import nn

torch.manual_seed(0)
net = nn.Linear(4, 1)
optimizer = torch.optim.LBFGS(net.parameters(), lr=1.0, max_iter=4)
x = torch.randn(32, 4)
calls = 0


def closure():
    global calls
    calls += 1
    optimizer.zero_grad()
    out = net(x)
    if calls == 7:
        out = torch.log(out * 0)  # FAULT
    loss = (out - x.sum(1, keepdim=True)).pow(2).mean()
    loss.backward()
    return loss


for _ in range(6):
    optimizer.step(closure)
