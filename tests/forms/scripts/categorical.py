import torch
from torch import nn

torch.manual_seed(0)
net = nn.Sequential(nn.Linear(4, 8), nn.Tanh(), nn.Linear(8, 2))
opt = torch.optim.SGD(net.parameters(), lr=0.1)
for i in range(4):
    x = torch.randn(3, 4)
    logits = net(x)
    if i == 2:
        logits = torch.log(logits - 100)  # FAULT
    d = torch.distributions.Categorical(logits=logits)
    loss = -d.log_prob(d.sample()).mean()
    opt.zero_grad()
    loss.backward()
    opt.step()
