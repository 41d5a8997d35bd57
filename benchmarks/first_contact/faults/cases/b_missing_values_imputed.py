"""Benign: nan in the raw table is replaced by nan_to_num and a missing-indicator before the model.
Source: Own: the usual imputation."""
import torch
from torch import nn

torch.manual_seed(0)
table = torch.randn(64, 6)
table[torch.rand(64, 6) < 0.2] = float("nan")
mean = table.nanmean(0)
net = nn.Sequential(nn.Linear(12, 16), nn.ReLU(), nn.Linear(16, 2))
opt = torch.optim.SGD(net.parameters(), lr=0.1)
for step in range(6):
    rows = table[torch.randint(64, (8,))]
    missing = rows.isnan()
    x = torch.cat([torch.nan_to_num(rows - mean, nan=0.0), missing.float()], 1)
    loss = nn.functional.cross_entropy(net(x), torch.randint(2, (8,)))
    opt.zero_grad()
    loss.backward()
    opt.step()
    print(step, loss.item())
