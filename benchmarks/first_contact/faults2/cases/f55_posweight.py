"""pytorch forums (pos_weight per batch): negatives / positives with no positive is inf, times 0
TRUTH op=aten.div reason=division by zero"""
import sys
import torch
from torch import nn
import torch.nn.functional as F
from _util import done
CURED = "--cured" in sys.argv
torch.manual_seed(0); torch.set_num_threads(1)

net = nn.Sequential(nn.Conv2d(1, 8, 3, padding=1), nn.BatchNorm2d(8), nn.ReLU(), nn.Conv2d(8, 1, 1)); opt = torch.optim.Adam(net.parameters(), 1e-3)
for step in range(4):
    x = torch.rand(2, 1, 12, 12); y = (x > 0.8).float()
    if step == 2: y[:] = 0
    pos = y.sum().clamp(min=1) if CURED else y.sum()
    pw = (y.numel() - y.sum()) / pos  # FAULT
    loss = F.binary_cross_entropy_with_logits(net(x), y, pos_weight=pw); opt.zero_grad(); loss.backward(); opt.step(); print(step, loss.item())
done(loss.detach(), net)
