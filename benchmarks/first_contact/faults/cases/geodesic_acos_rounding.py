"""Rotation regression: acos((trace-1)/2) where rounding pushes the argument over 1.
Source: papagina/RotationContinuity#1, naver/roma#9."""
import sys
import torch
import torch.nn.functional as F
from torch import nn

CURED = "--cured" in sys.argv
torch.manual_seed(0)
net = nn.Sequential(nn.Linear(9, 32), nn.SiLU(), nn.Linear(32, 6))


def gram_schmidt(six):
    a, b = six[:, :3], six[:, 3:]
    x = F.normalize(a, dim=1)
    y = F.normalize(b - (x * b).sum(1, keepdim=True) * x, dim=1)
    return torch.stack([x, y, torch.linalg.cross(x, y)], 2)


def angle(r, s):
    trace = (r * s).sum((1, 2))
    cos = (trace - 1) / 2
    if CURED:
        cos = cos.clamp(-1 + 1e-5, 1 - 1e-5)
    return torch.acos(cos)  # FAULT


opt = torch.optim.Adam(net.parameters(), lr=1e-3)
for step in range(4):
    six = net(torch.randn(64, 9))
    r = gram_schmidt(six)
    target = gram_schmidt(torch.randn(64, 6))
    if step == 2:
        target = r.detach() * (1 + 1e-6)  # the fit is perfect up to rounding
    loss = angle(r, target).mean()
    opt.zero_grad()
    loss.backward()
    opt.step()
    print(step, loss.item())
