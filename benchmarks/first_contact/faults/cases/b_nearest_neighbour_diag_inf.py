"""Benign: the diagonal of a distance matrix is set to inf for the nearest other sample (a KoLeo-like regulariser), under no_grad.
Source: facebookresearch/dinov2's KoLeo loss (diagonal filled before the nearest neighbour)."""
import torch
from torch import nn
import torchvision

torch.manual_seed(0)
net = torchvision.models.shufflenet_v2_x0_5(num_classes=8)
opt = torch.optim.SGD(net.parameters(), lr=1e-3)
for step in range(3):
    z = nn.functional.normalize(net(torch.randn(6, 3, 64, 64)))
    with torch.no_grad():
        d = torch.cdist(z, z)
        d.fill_diagonal_(float("inf"))
        near = d.argmin(1)
    gap = (z - z[near]).pow(2).sum(1)
    loss = -torch.log(gap + 1e-6).mean()
    opt.zero_grad()
    loss.backward()
    opt.step()
    print(step, loss.item())
