"""BatchNorm2d(momentum=0), copied from a framework in which 0 means no memory: the running statistics never move, and evaluation uses
mean 0 and variance 1.
Source: https://github.com/pytorch/pytorch/issues/15298
Truth: running_mean is 0 at the end; accuracy in eval mode is far below that in train mode.
Could a tool know: yes: a batch norm in train mode with momentum 0 tracks statistics that stand still.
"""
import sys
import torch
from torch import nn

HEALTHY = "--healthy" in sys.argv
torch.manual_seed(0)
torch.set_num_threads(1)
M = 0.1 if HEALTHY else 0.0


class BasicConv(nn.Module):
    def __init__(self, i, o):
        super().__init__()
        self.conv, self.bn = nn.Conv2d(i, o, 3, bias=False), nn.BatchNorm2d(o, eps=0.001, momentum=M)

    def forward(self, x):
        return torch.relu(self.bn(self.conv(x)))


model = nn.Sequential(BasicConv(2, 8), BasicConv(8, 16), nn.AdaptiveAvgPool2d(1), nn.Flatten(), nn.Linear(16, 5))
opt = torch.optim.SGD(model.parameters(), lr=0.05, momentum=0.9)
protos = torch.randn(5, 2, 10, 10) * 3


def batch(n):
    y = torch.randint(0, 5, (n,))
    return protos[y] + torch.randn(n, 2, 10, 10) + 2.0, y


for step in range(150):
    x, y = batch(32)
    loss = nn.functional.cross_entropy(model(x), y)
    opt.zero_grad()
    loss.backward()
    opt.step()
model.eval()
x, y = batch(256)
with torch.no_grad():
    acc = (model(x).argmax(1) == y).float().mean()
print(f"loss {loss.item():.4f} eval accuracy {acc:.3f} running mean {model[0].bn.running_mean.abs().max():.4f}")
