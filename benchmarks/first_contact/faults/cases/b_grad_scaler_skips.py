"""Benign: GradScaler starts at 2^24, float16 gradients overflow, a few steps are skipped and the scale halves, as designed.
Source: torch.amp documentation (skipped steps at the start)."""
import torch
from torch import nn

torch.manual_seed(0)
net = nn.Sequential(nn.Linear(16, 64), nn.ReLU(), nn.Linear(64, 4))
opt = torch.optim.SGD(net.parameters(), lr=0.05)
scaler = torch.amp.GradScaler("cpu", init_scale=2.0**24)
skipped = 0
for step in range(14):
    with torch.autocast("cpu", dtype=torch.float16):
        loss = nn.functional.cross_entropy(net(torch.randn(8, 16)), torch.randint(4, (8,)))
    opt.zero_grad()
    scaler.scale(loss).backward()
    before = scaler.get_scale()
    scaler.step(opt)
    scaler.update()
    skipped += scaler.get_scale() < before
    print(step, loss.item(), scaler.get_scale())
print("skipped", skipped)
assert 0 < skipped < 10 and all(p.isfinite().all() for p in net.parameters())
