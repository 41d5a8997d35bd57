"""mlcommons/hpc#27: warmup of zero steps gives a nan learning rate
TRUTH op=optimizer reason=optimizer update"""
import sys
import torch
from torch import nn
import torch.nn.functional as F
from _util import done
CURED = "--cured" in sys.argv
torch.manual_seed(0); torch.set_num_threads(1)

import numpy as np
np.seterr(all="ignore")
warmup = np.float64(5 if CURED else 0)
net = nn.Sequential(nn.Conv2d(1, 4, 3), nn.GroupNorm(2, 4), nn.ReLU(), nn.Flatten(), nn.Linear(4 * 36, 3))
opt = torch.optim.SGD(net.parameters(), lr=0.1, momentum=0.9)
sched = torch.optim.lr_scheduler.LambdaLR(opt, lambda s: float(np.minimum(1.0, np.float64(s) / warmup)))  # FAULT
for step in range(4):
    x, y = torch.randn(8, 1, 8, 8), torch.randint(0, 3, (8,))
    loss = F.cross_entropy(net(x), y); opt.zero_grad(); loss.backward(); opt.step(); sched.step(); print(step, loss.item(), opt.param_groups[0]["lr"])
done(loss.detach(), net)
