"""Benign: max pooling over valid points with masked_fill(-inf), in a PointNet.
Source: Own: the usual masked maximum."""
import torch
from torch import nn

torch.manual_seed(0)


class PointNet(nn.Module):
    def __init__(self):
        super().__init__()
        self.local = nn.Sequential(nn.Conv1d(3, 16, 1), nn.BatchNorm1d(16), nn.ReLU(), nn.Conv1d(16, 24, 1))
        self.head = nn.Linear(24, 4)

    def forward(self, points, valid):
        h = self.local(points)
        h = h.masked_fill(~valid[:, None], float("-inf"))
        return self.head(h.max(-1).values)


net = PointNet()
opt = torch.optim.Adam(net.parameters(), lr=1e-3)
for step in range(5):
    valid = torch.arange(20) < torch.randint(1, 20, (6, 1))
    loss = nn.functional.cross_entropy(net(torch.randn(6, 3, 20), valid), torch.randint(4, (6,)))
    opt.zero_grad()
    loss.backward()
    opt.step()
    print(step, loss.item())
