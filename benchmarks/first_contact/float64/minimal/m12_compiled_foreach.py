"""Fault: pytorch/pytorch#198033. No operation and no line."""
import torch
from torch import nn

torch.manual_seed(0)


class Net(nn.Module):
    def __init__(self):
        super().__init__()
        self.register_buffer("k", torch.linspace(0, 1, 64).reshape(8, 8))
        self.a = nn.Linear(8, 8)

    def forward(self, x):
        torch._foreach_add_([self.k], [self.k.flip(0)])
        return self.a(x @ (self.k * 1))


model = Net()
run = torch.compile(model)
optimizer = torch.optim.SGD(model.parameters(), 0.001)
for _ in range(3):
    run(torch.randn(4, 8)).square().mean().backward()
    optimizer.step()
    optimizer.zero_grad()
