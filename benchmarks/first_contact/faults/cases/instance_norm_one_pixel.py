"""A hand-written instance norm with the unbiased variance over a 1x1 map.
Source: facebookresearch/SparseConvNet#190 (variance of one element), quantumiracle/Popular-RL-Algorithms#45."""
import sys
import torch
from torch import nn

CURED = "--cured" in sys.argv
torch.manual_seed(0)


class INorm(nn.Module):
    def forward(self, x):
        mean = x.mean((2, 3), keepdim=True)
        var = x.var((2, 3), keepdim=True, unbiased=not CURED)  # FAULT
        return (x - mean) / torch.sqrt(var + 1e-5)


net = nn.Sequential(nn.Conv2d(3, 8, 3, 2, 1), INorm(), nn.ReLU(), nn.Conv2d(8, 8, 3, 2, 1), INorm(), nn.ReLU(), nn.AdaptiveAvgPool2d(1), nn.Flatten(), nn.Linear(8, 2))
opt = torch.optim.Adam(net.parameters())
for step, size in enumerate([16, 8, 4, 8]):
    loss = nn.functional.cross_entropy(net(torch.randn(3, 3, size, size)), torch.randint(2, (3,)))
    opt.zero_grad()
    loss.backward()
    opt.step()
    print(step, loss.item())
