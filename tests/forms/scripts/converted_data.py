# Numbers that come from elsewhere and are nan, converted to the dtype that they have.
import numpy
import torch
from torch import nn

torch.manual_seed(0)
net = nn.Linear(4, 4)
opt = torch.optim.SGD(net.parameters(), 1e-3)
for step in range(3):
    x = torch.randn(3, 4)
    x = net(x).tanh()
    weights = torch.from_numpy(numpy.full((3, 4), numpy.nan if step == 2 else 1.0, "float32")).to(torch.float32).contiguous()  # FAULT
    loss = (x * weights).mean()
    opt.zero_grad()
    loss.backward()
    opt.step()
