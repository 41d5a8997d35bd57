import torch
from torch import nn

layer = nn.Linear(4, 4)
opt = torch.optim.Adam(layer.parameters())
for _ in range(3):
    loss = torch.log1p(torch.exp(layer.forward(torch.ones(2, 4)) + 1000)).mean()  # FAULT
    opt.zero_grad()
    loss.backward()
    opt.step()
    print(loss.item())
