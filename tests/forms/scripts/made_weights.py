"""A model that runs with weights that the script has made, as in meta-learning and hypernetworks."""

import torch
from torch import nn
from torch.func import functional_call

torch.manual_seed(0)
net, maker = nn.Linear(4, 1), nn.Linear(2, 5)
optimizer = torch.optim.Adam(maker.parameters(), 1e-3)
for step in range(8):
    made = maker(torch.randn(1, 2))
    scale = made.std() * (step != 5)
    made = made / scale  # FAULT
    x = torch.randn(16, 4)
    out = functional_call(net, {"weight": made[:, :4], "bias": made[0, 4:]}, (x,))
    loss = (out - x.sum(1, keepdim=True)).pow(2).mean()
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()
