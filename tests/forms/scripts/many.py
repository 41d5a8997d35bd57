import torch
from torch import nn

torch.manual_seed(0)
for k in range(40):
    net = nn.Sequential(nn.Linear(4, 8), nn.ReLU(), nn.Linear(8, 1))
    opt = torch.optim.SGD(net.parameters(), lr=0.1)
    for i in range(2):
        y = net(torch.randn(3, 4))
        if k == 30 and i == 1:
            y = torch.log(y - 100)  # FAULT
        loss = y.square().mean()
        opt.zero_grad()
        loss.backward()
        opt.step()
