"""Fault: a state in bfloat16 that is rounded 400 times at one line (17); said is 'many operations lose together', without the line."""
import torch
from torch import nn

torch.manual_seed(0)


class Net(nn.Module):
    def __init__(self):
        super().__init__()
        self.a = nn.Linear(4, 4)

    def forward(self, x):
        u = self.a(x).sigmoid() * 0.001
        h = torch.full_like(u, 2.0)
        for _ in range(400):
            h = h * 0.9985 + u
        return h


model = Net().bfloat16()
optimizer = torch.optim.SGD(model.parameters(), 0.01)
for _ in range(3):
    model(torch.randn(4, 4).bfloat16()).square().mean().backward()
    optimizer.step()
    optimizer.zero_grad()
