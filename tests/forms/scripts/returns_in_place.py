# Returns are computed backwards into a buffer, after more calls of the model than are watched operation by operation.
import torch
from torch import nn

torch.manual_seed(0)
net = nn.Linear(4, 1)
opt = torch.optim.Adam(net.parameters())
for _ in range(2):
    with torch.no_grad():
        values = torch.cat([net(torch.ones(1, 4)) for _ in range(40)])
        returns, last = torch.zeros_like(values), 0
        for t in reversed(range(40)):
            returns[t] = last = values[t] + 1e30 * last  # FAULT
        target = returns + values
    loss = (net(torch.ones(40, 4)) - target).abs().mean()
    opt.zero_grad()
    loss.backward()
    opt.step()
