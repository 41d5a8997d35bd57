"""Drops a batch whose gradient norm is not finite, as many training loops do: the run goes on, with a note."""

import torch
from torch import nn

torch.manual_seed(0)
net = nn.Linear(4, 1)
optimizer = torch.optim.SGD(net.parameters(), 0.01)
for step in range(8):
    x = torch.randn(16, 4)
    if step == 5:
        x[3] = 1e30
    loss = (net(x) - x.sum(1, keepdim=True)).pow(2).mean()  # FAULT
    optimizer.zero_grad()
    loss.backward()
    if nn.utils.clip_grad_norm_(net.parameters(), 1.0).isfinite():
        optimizer.step()
assert all(p.isfinite().all() for p in net.parameters())
