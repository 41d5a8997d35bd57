# opts: --check capsule
# truth: backward of sqrt at exactly 0 (aten.sqrt backward: div): gradient inf then nan, forward finite
# source: pytorch/pytorch#4320-like: gradient of sqrt at 0, contrastive losses
import flips as C, torch
from torch import nn
import torch.nn.functional as F
class M(nn.Module):
    def __init__(s): super().__init__(); s.l = nn.Linear(8, 8)
    def forward(s, x): y = s.l(x); return torch.sqrt((y - y[:1]).pow(2).sum(1))  # FAULT
m = M(); o = torch.optim.SGD(m.parameters(), 0.1)
for C.STEP in range(4): m(torch.rand(16, 8)).mean().backward(); o.step(); o.zero_grad()
