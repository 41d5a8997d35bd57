"""Triplet loss with hard mining: other pairs are set to inf and -inf before min and max.
Source: adambielski/siamese-triplet, omoindrot/tensorflow-triplet-loss (batch hard)."""
import math, torch
from torch import nn
import torch.nn.functional as F
torch.set_num_threads(1)
torch.manual_seed(14)
net = nn.Sequential(nn.Linear(16, 64), nn.ReLU(), nn.Linear(64, 8))
opt = torch.optim.Adam(net.parameters(), lr=3e-3)
centers = torch.randn(6, 16)
losses = []
for step in range(40):
    y = torch.arange(6).repeat_interleave(4)
    z = F.normalize(net(centers[y] + 0.7 * torch.randn(24, 16)), dim=1)
    d = (2 - 2 * z @ z.T).clamp(min=1e-9)
    same = y[:, None] == y
    eye = torch.eye(24, dtype=torch.bool)
    pos = d.masked_fill(~same | eye, float("-inf")).amax(1)
    neg = d.masked_fill(same, float("inf")).amin(1)
    loss = F.relu(pos - neg + 0.3).mean()
    opt.zero_grad()
    loss.backward()
    opt.step()
    losses.append(loss.item())
print(losses[0], losses[-1], "FINITE", all(map(math.isfinite, losses)) and all(bool(p.isfinite().all()) for p in net.parameters()))
