"""Fault: rows 12 to 15 of a gradient are memory that nothing has written. Silent: float64 begins with the run's numbers there."""
import torch
from torch import nn


class Cut(torch.autograd.Function):
    @staticmethod
    def forward(ctx, x):
        y = torch.zeros_like(x)
        y[:12] = x[:12]
        return y

    @staticmethod
    def backward(ctx, g):
        spent = [torch.full_like(g, 7.5) for _ in range(8)]
        del spent
        out = torch.empty_like(g)
        out[:12] = g[:12]
        return out


class Net(nn.Module):
    def __init__(self):
        super().__init__()
        self.a, self.b = nn.Linear(8, 64), nn.Linear(64, 1)

    def forward(self, x):
        return self.b(Cut.apply(self.a(x)))


torch.manual_seed(0)
model = Net()
optimizer = torch.optim.SGD(model.parameters(), 0.01)
for _ in range(3):
    model(torch.randn(16, 8)).square().mean().backward()
    print(float(model.a.bias.grad.abs().max()))
    optimizer.step()
    optimizer.zero_grad()
