"""Benign: a script that looks at its loss and leaves out a batch whose loss is nan, before backward.
Source: SeanNaren/deepspeech.pytorch#272 (a loss of inf is looked at and left out)."""
import torch
from torch import nn

torch.manual_seed(0)
net = nn.Sequential(nn.Linear(4, 8), nn.ReLU(), nn.Linear(8, 2))
opt = torch.optim.SGD(net.parameters(), lr=0.1)
skipped = 0
for step in range(6):
    x = torch.randn(6, 4)
    if step == 3:
        x[2, 1] = float("nan")
    loss = nn.functional.cross_entropy(net(x), torch.randint(2, (6,)))
    if not torch.isfinite(loss):
        skipped += 1
        continue
    opt.zero_grad()
    loss.backward()
    opt.step()
    print(step, loss.item())
assert skipped == 1 and all(p.isfinite().all() for p in net.parameters())
