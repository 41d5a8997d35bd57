"""Clips all gradients by their common norm: by clip_grad_norm_, or (--titan) as torchtitan does, or (--hand) by arithmetic. The three give the same update."""
import sys

import torch
from torch import nn

torch.manual_seed(0)
model = nn.Sequential(nn.Linear(8, 16), nn.Tanh(), nn.Linear(16, 4))
opt = torch.optim.SGD(model.parameters(), lr=0.1)
for step in range(9):
    x = torch.randn(16, 8, generator=torch.Generator().manual_seed(step))
    (model(x) - 3).square().mean().backward()
    grads = [p.grad for p in model.parameters()]
    if "--titan" in sys.argv:
        norm = torch.nn.utils.get_total_norm(grads)
        torch.nn.utils.clip_grads_with_norm_(model.parameters(), 0.1, norm)
    elif "--hand" in sys.argv:
        norm = torch.stack([g.norm() for g in grads]).norm()
        for g in grads:
            g.mul_(torch.clamp(0.1 / (norm + 1e-6), max=1.0))
    else:
        torch.nn.utils.clip_grad_norm_(model.parameters(), 0.1)
    opt.step()
    opt.zero_grad()
    print(step, f"{sum(p.detach().double().sum().item() for p in model.parameters()):.9f}", flush=True)
