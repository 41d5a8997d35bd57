import torch
from torch import nn

q, target = nn.Linear(4, 1), nn.Linear(4, 1)
opt = torch.optim.Adam(q.parameters())
for _ in range(3):
    with torch.no_grad():
        y = 3e38 * (target(torch.ones(2, 4)).abs() + 10)  # FAULT
    loss = ((q(torch.ones(2, 4)) - y) / 2).mean()
    opt.zero_grad()
    loss.backward()
    opt.step()
