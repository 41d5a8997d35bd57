# opts: --check capsule
# truth: log of a number that is not positive at step 3: aten.log, -inf/nan
# source: pytorch issues: log(0) in losses
import flips as C, torch
from torch import nn
import torch.nn.functional as F
class M(nn.Module):
    def __init__(s): super().__init__(); s.l = nn.Linear(8, 8)
    def forward(s, x): return torch.log(s.l(x) * 0 + x)  # FAULT
m = M(); o = torch.optim.SGD(m.parameters(), 0.1)
for C.STEP in range(6): m(torch.rand(16, 8) * (torch.arange(8) != 5 if C.STEP == 3 else torch.ones(8))).mean().backward(); o.step(); o.zero_grad()
