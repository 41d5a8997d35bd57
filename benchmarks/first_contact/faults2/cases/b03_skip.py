"""batches whose loss is not finite are skipped by the script (facebookresearch/fairseq-like), bad data"""
import sys
import torch
from torch import nn
import torch.nn.functional as F
from _util import done
torch.manual_seed(0); torch.set_num_threads(1)

net = nn.Sequential(nn.Linear(8, 32), nn.ReLU(), nn.Linear(32, 1)); opt = torch.optim.Adam(net.parameters(), 1e-3); skipped = 0
for step in range(25):
    x, y = torch.randn(16, 8), torch.randn(16)
    if step % 10 == 7: y[3] = float("nan")
    loss = F.mse_loss(net(x).squeeze(1), y)
    if not torch.isfinite(loss):
        skipped += 1; continue
    opt.zero_grad(); loss.backward(); opt.step()
print(loss.item(), skipped); done(loss.detach(), net)
