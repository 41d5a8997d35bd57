"""Fault: pytorch/pytorch#197089. No operation and no line."""
import torch
from torch import nn

torch.manual_seed(0)


class Net(nn.Module):
    def __init__(self):
        super().__init__()
        self.a = nn.Linear(64, 4)

    def forward(self, x):
        return self.a((x - x.mean(-1, keepdim=True)) / (x.std(-1, keepdim=True) + 1e-24))


model = Net()
run = torch.compile(model)
optimizer = torch.optim.SGD(model.parameters(), 0.01)
for _ in range(3):
    run(torch.randn(16, 64) * 1e-23).square().mean().backward()
    optimizer.step()
    optimizer.zero_grad()
