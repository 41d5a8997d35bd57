"""invented: EMA teacher written by hand with bias correction 1 - decay**step at step 0
TRUTH op=aten.div reason=division by zero"""
import sys
import torch
from torch import nn
import torch.nn.functional as F
from _util import done
CURED = "--cured" in sys.argv
torch.manual_seed(0); torch.set_num_threads(1)

import copy
net = nn.Sequential(nn.Linear(8, 32), nn.LayerNorm(32), nn.ReLU(), nn.Linear(32, 8)); teacher = copy.deepcopy(net).requires_grad_(False)
avg = [torch.zeros_like(p) for p in net.parameters()]; opt = torch.optim.Adam(net.parameters(), 1e-3); decay = 0.99
for step in range(4):
    x = torch.randn(8, 8)
    with torch.no_grad(): target = teacher(x + 0.1 * torch.randn_like(x))
    loss = F.mse_loss(net(x), target) + 0.1 * F.mse_loss(net(x), x); opt.zero_grad(); loss.backward(); opt.step(); print(step, loss.item())
    with torch.no_grad():
        for a, p, t in zip(avg, net.parameters(), teacher.parameters()):
            a.mul_(decay).add_(p, alpha=1 - decay)
            t.copy_(a / (1 - decay ** (step + CURED)))  # FAULT
done(loss.detach(), net, teacher)
