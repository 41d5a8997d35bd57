"""Reaction kinetics c ** n with a learned order: the network's concentration dips below 0.
Source: prateekbhustali/Physics-Informed-Neural-Networks#1, pytorch/pytorch#75405."""
import sys
import torch
from torch import nn

CURED = "--cured" in sys.argv
torch.manual_seed(0)


class Kinetics(nn.Module):
    def __init__(self):
        super().__init__()
        self.conc = nn.Sequential(nn.Linear(1, 16), nn.Tanh(), nn.Linear(16, 1))
        self.log_k, self.order = nn.Parameter(torch.zeros(())), nn.Parameter(torch.tensor(1.3))

    def forward(self, t):
        c = self.conc(t) + 0.8
        dc = torch.autograd.grad(c.sum(), t, create_graph=True)[0]
        if CURED:
            c = c.clamp(min=1e-6)
        rate = self.log_k.exp() * torch.pow(c, self.order)  # FAULT
        return (dc + rate).pow(2).mean()


net = Kinetics()
opt = torch.optim.Adam(net.parameters(), lr=1e-2)
for step in range(4):
    t = torch.rand(32, 1, requires_grad=True)
    if step == 2:
        net.conc[2].bias.data.sub_(2.0)
    loss = net(t)
    opt.zero_grad()
    loss.backward()
    opt.step()
    print(step, loss.item())
