"""Fault: + -1e9 absorbs the scores (line 15); named is the softmax after it."""
import torch
from torch import nn

torch.manual_seed(0)


class Net(nn.Module):
    def __init__(self):
        super().__init__()
        self.a = nn.Linear(8, 8)

    def forward(self, x):
        s = self.a(x)
        s = s + torch.full_like(s, -1e9)
        return (3 * s).softmax(-1)


model = Net()
optimizer = torch.optim.SGD(model.parameters(), 0.01)
for _ in range(3):
    model(torch.randn(16, 8)).square().mean().backward()
    optimizer.step()
    optimizer.zero_grad()
