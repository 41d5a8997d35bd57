import torch
from torch import nn

torch.manual_seed(0)
enc, dec = nn.Linear(4, 8), nn.Linear(8, 4)
opt = torch.optim.Adam([*enc.parameters(), *dec.parameters()], lr=0.01)
for i in range(4):
    x = torch.randn(3, 4)
    z = enc(x)
    if i == 2:
        z = z / torch.zeros(1)  # FAULT
    loss = (dec(z) - x).square().mean()
    opt.zero_grad()
    loss.backward()
    opt.step()
