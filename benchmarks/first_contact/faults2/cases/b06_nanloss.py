"""nan-aware losses: missing targets are nan and masked before the difference; nanmean, nanmedian of the inputs (jdb78/pytorch-forecasting)"""
import sys
import torch
from torch import nn
import torch.nn.functional as F
from _util import done
torch.manual_seed(0); torch.set_num_threads(1)

net = nn.Sequential(nn.Linear(8, 32), nn.ReLU(), nn.Linear(32, 3)); opt = torch.optim.Adam(net.parameters(), 1e-3)
for step in range(25):
    x = torch.randn(16, 8); y = torch.randn(16, 3).masked_fill(torch.rand(16, 3) < 0.3, float("nan")); ok = ~torch.isnan(y)
    loss = (net(x)[ok] - y[ok]).pow(2).mean() + 0 * y.nanmean(); opt.zero_grad(); loss.backward(); opt.step()
print(loss.item()); done(loss.detach(), net)
