import torch
from torch import nn

torch.manual_seed(0)
class Cos(nn.Module):
    def __init__(self):
        super().__init__()
        self.a = nn.Linear(4, 4)
    def forward(self, x, y):
        a = self.a(x)
        return (a * y).sum(-1) / y.norm(dim=-1)

net = Cos()
y = torch.randn(6, 4)
y[2] = 0
net(torch.randn(6, 4), y).mean().backward()
torch.optim.SGD(net.parameters(), 1e-2).step()
