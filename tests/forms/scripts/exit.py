import torch
from torch import nn

torch.manual_seed(0)
net = nn.Linear(4, 1)
opt = torch.optim.SGD(net.parameters(), lr=0.1)
for i in range(4):
    loss = net(torch.randn(3, 4)).square().mean()
    if i == 2:
        loss = (loss - 1e9).sqrt()  # FAULT
    if not torch.isfinite(loss):
        raise SystemExit(1)
    opt.zero_grad()
    loss.backward()
    opt.step()
