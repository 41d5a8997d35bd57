"""VisualComputingInstitute/triplet-reid (batch hard loss), pytorch/pytorch#2421: euclidean distances by the expanded formula, the diagonal is 0
TRUTH op=aten.div|aten.mul reason=gradient of sqrt or norm at zero phase=backward"""
import sys
import torch
from torch import nn
import torch.nn.functional as F
from _util import done
CURED = "--cured" in sys.argv
torch.manual_seed(0); torch.set_num_threads(1)

import timm
net = timm.create_model("resnet10t", num_classes=16); opt = torch.optim.Adam(net.parameters(), 1e-3)
def pdist(e):
    s = (e * e).sum(1); d2 = (s[:, None] + s[None] - 2 * e @ e.T).clamp(min=1e-6 if CURED else 0.0)
    d2 = d2 * (1 - torch.eye(len(e))) + (1e-6 * torch.eye(len(e)) if CURED else 0)
    return torch.sqrt(d2)  # FAULT
for step in range(2):
    x, y = torch.rand(8, 3, 32, 32), torch.arange(8) // 2
    d = pdist(net(x)); same = y[:, None] == y[None]
    loss = F.softplus((d * same).max(1).values - (d + 1e3 * same).min(1).values).mean(); opt.zero_grad(); loss.backward(); opt.step(); print(step, loss.item())
done(loss.detach(), net)
