"""Fault: v * 0.999 does nothing in bfloat16 (line 18); named is the sum in the gradient at line 17, which v hardly depends on."""
import torch
from torch import nn

torch.manual_seed(0)


class Net(nn.Module):
    def __init__(self):
        super().__init__()
        self.w, self.v = nn.Parameter(torch.randn(8)), nn.Parameter(torch.full((8,), 4.0))

    def forward(self, x):
        w, v = self.w, self.v
        for row in x:
            g = (w * row).sum() * row * 0.01
            v = v * 0.999 + 0.001 * g.square()
            w = w - 0.1 * g / (v.sqrt() + 1e-8)
        return v


model = Net().bfloat16()
optimizer = torch.optim.SGD(model.parameters(), 1e-3)
for _ in range(3):
    model(torch.randn(600, 8).bfloat16()).square().mean().backward()
    optimizer.step()
    optimizer.zero_grad()
