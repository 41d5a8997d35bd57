"""Inverse-frequency class weights from the first shard: a class that is absent there gets weight inf.
Source: fcakyon/balanced-loss#12, webis-de/small-text#39."""
import sys
import torch
from torch import nn

CURED = "--cured" in sys.argv
torch.manual_seed(0)
first_shard = torch.randint(0, 4, (200,))
counts = torch.bincount(first_shard, minlength=5).float()
if CURED:
    counts = counts.clamp(min=1)
weight = 1.0 / counts  # FAULT
criterion = nn.CrossEntropyLoss(weight=weight)
net = nn.Sequential(nn.Linear(6, 16), nn.ReLU(), nn.Linear(16, 5))
opt = torch.optim.SGD(net.parameters(), lr=0.1)
for step in range(5):
    y = torch.randint(0, 4, (8,))
    if step == 3:
        y[2] = 4
    loss = criterion(net(torch.randn(8, 6)), y)  # FAULT
    opt.zero_grad()
    loss.backward()
    opt.step()
    print(step, loss.item())
