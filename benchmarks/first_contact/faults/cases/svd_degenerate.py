"""Low-rank regulariser through the SVD's vectors of a rank-deficient batch of features.
Source: pytorch/pytorch#49886, jax-ml/jax#2311."""
import sys
import torch
from torch import nn

CURED = "--cured" in sys.argv
torch.manual_seed(0)
enc = nn.Sequential(nn.Linear(6, 8), nn.ReLU(), nn.Linear(8, 5, bias=False))
opt = torch.optim.SGD(enc.parameters(), lr=1e-2)
for step in range(3):
    x = torch.randn(5, 6)
    if step == 2:
        x = torch.zeros(5, 6)
        x[0] = 1.0
        if CURED:
            x = x + 0.1 * torch.randn(5, 6)
        with torch.no_grad():
            enc[0].bias.zero_()
    feats = enc(x)
    u, s, vh = torch.linalg.svd(feats)  # FAULT
    low_rank = (u[:, :2] * s[:2]) @ vh[:2]
    loss = (low_rank - 1.0).square().mean() + (u[:, 0] * vh[1]).abs().sum()
    opt.zero_grad()
    loss.backward()
    opt.step()
    print(step, loss.item())
