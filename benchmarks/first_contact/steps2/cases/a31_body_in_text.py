import torch
from torch import nn

torch.manual_seed(0)
class Net(nn.Module):
    def __init__(self):
        super().__init__()
        self.x = nn.Linear(4, 4)
    def forward(self, h, x, y):
        d = y.abs().sum(-1, keepdim=True)
        return (self.x(h) - x * y) / (d * x[:, :1] * 0 + d)

net = Net()
y = torch.randn(4, 4)
y[2] = 0
net(torch.randn(4, 4), torch.ones(4, 4), y).mean().backward()
torch.optim.SGD(net.parameters(), 1e-2).step()
