"""Batch-hard triplet loss on noisy data with too high a rate: all embeddings collapse to one point, and the loss stays at the margin.
Source: https://github.com/omoindrot/tensorflow-triplet-loss/issues/38
Truth: the mean distance of embeddings is 0.01 and the loss 0.2 (the margin; healthy: 0.6 and 0) in the second half.
Could a tool know: partly: the model's outputs no longer depend on its inputs; the loss stands at one value.
"""
import sys
import torch
from torch import nn

HEALTHY = "--healthy" in sys.argv
torch.manual_seed(0)
torch.set_num_threads(1)
model = nn.Sequential(nn.Linear(24, 64), nn.ReLU(), nn.Linear(64, 64), nn.ReLU(), nn.Linear(64, 8))
opt = torch.optim.Adam(model.parameters(), lr=5e-4 if HEALTHY else 2e-2)
centers = torch.randn(12, 24)
for step in range(200):
    y = torch.randint(0, 12, (48,))
    x = centers[y] + (0.3 if HEALTHY else 1.5) * torch.randn(48, 24)
    e = model(x)
    d = (e[:, None] - e[None]).pow(2).sum(-1).clamp_min(1e-12).sqrt()
    same = y[:, None] == y[None]
    pos = (d * same).max(1)[0]
    neg = (d + 1e3 * same).min(1)[0]
    loss = (pos - neg + 0.2).clamp_min(0).mean()
    opt.zero_grad()
    loss.backward()
    opt.step()
print(f"loss {loss.item():.4f} mean distance {d.mean().item():.2e}")
