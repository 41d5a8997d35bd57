"""Physics-informed net in polar form: the derivative of r = sqrt(x^2 + y^2) at the origin, taken by autograd.grad.
Source: lululxvi/deepxde#428, pytorch/pytorch#2421."""
import sys
import torch
from torch import nn

CURED = "--cured" in sys.argv
torch.manual_seed(0)


class Field(nn.Module):
    def __init__(self):
        super().__init__()
        self.net = nn.Sequential(nn.Linear(1, 20), nn.Tanh(), nn.Linear(20, 20), nn.Tanh(), nn.Linear(20, 1))

    def forward(self, xy):
        square = (xy**2).sum(1, keepdim=True)
        r = torch.sqrt(square + (1e-12 if CURED else 0.0))  # FAULT
        return self.net(r)


net = Field()
opt = torch.optim.Adam(net.parameters(), lr=1e-3)
for step in range(4):
    xy = torch.rand(32, 2) * 2 - 1
    if step == 2:
        xy[0] = 0  # a grid point on the axis
    xy.requires_grad_(True)
    u = net(xy)
    du = torch.autograd.grad(u.sum(), xy, create_graph=True)[0]
    lap = sum(torch.autograd.grad(du[:, i].sum(), xy, create_graph=True)[0][:, i] for i in range(2))
    loss = (lap + 1).pow(2).mean() + u.pow(2).mean()
    opt.zero_grad()
    loss.backward()
    opt.step()
    print(step, loss.item())
