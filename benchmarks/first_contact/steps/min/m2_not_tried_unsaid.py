import torch
from torch import nn


class Net(nn.Module):
    def __init__(self):
        super().__init__()
        self.net = nn.Linear(4, 1)

    def forward(self, x):
        value = self.net(x)[:, 0]
        return (value - value.mean()) / (value.std() + 1e-8)


model = Net()
optimizer = torch.optim.SGD(model.parameters(), lr=1e-3)
model(torch.randn(1, 4)).sum().backward()
optimizer.step()
