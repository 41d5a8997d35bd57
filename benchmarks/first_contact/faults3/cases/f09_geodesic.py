"""Rotation regression (6D representation) with a consistency term between two augmented views, measured by the geodesic angle.
Source: papagina/RotationContinuity#11, naver/roma#9, eigenvivek/nanodrr#31 (acos at 1)."""
import sys, math
import torch
from torch import nn
import torch.nn.functional as F

torch.set_num_threads(1)
torch.manual_seed(9)
CURED = "--cured" in sys.argv


def rotation_6d(x):
    a, b = x[:, :3], x[:, 3:]
    e1 = F.normalize(a, dim=-1)
    e2 = F.normalize(b - (e1 * b).sum(-1, keepdim=True) * e1, dim=-1)
    return torch.stack([e1, e2, torch.linalg.cross(e1, e2)], dim=-2)


def geodesic(r1, r2):
    cos = ((r1 @ r2.transpose(1, 2)).diagonal(dim1=1, dim2=2).sum(-1) - 1) / 2
    lim = 1 - 1e-6 if CURED else 1.0
    return torch.acos(cos.clamp(-lim, lim))  # FAULT


class PoseNet(nn.Module):
    def __init__(self):
        super().__init__()
        self.point = nn.Sequential(nn.Linear(3, 32), nn.ReLU(), nn.Linear(32, 64))
        self.head = nn.Sequential(nn.Linear(64, 32), nn.ReLU(), nn.Linear(32, 6))

    def forward(self, cloud):
        return rotation_6d(self.head(self.point(cloud).amax(1)))


net = PoseNet()
opt = torch.optim.Adam(net.parameters(), lr=1e-3)
losses = []
for step in range(18):
    target = rotation_6d(torch.randn(16, 6))
    cloud = torch.randn(1, 50, 3).expand(16, -1, -1) @ target
    jitter = 0.02 * torch.randn_like(cloud)
    if step % 11 == 10:
        jitter[::2] = 0.0  # augmentation is drawn with p < 1
    r1, r2 = net(cloud), net(cloud + jitter)
    loss = F.mse_loss(r1, target) + 0.1 * geodesic(r1, r2).mean()
    opt.zero_grad()
    loss.backward()
    opt.step()
    losses.append(loss.item())
print(losses)
print("FINITE", all(map(math.isfinite, losses)) and all(bool(p.isfinite().all()) for p in net.parameters()))
