import torch
from torch import nn

m = nn.Sequential(nn.Linear(4, 4), nn.Linear(4, 4))
opt = torch.optim.Adam(m.parameters(), lr=1e30)


def closure():
    opt.zero_grad()
    loss = nn.functional.mse_loss(m(torch.randn(8, 4)), torch.zeros(8, 4))  # FAULT
    loss.backward()
    return loss


for _ in range(4):
    print(opt.step(closure).item())
