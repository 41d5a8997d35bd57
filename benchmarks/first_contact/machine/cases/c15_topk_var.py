# opts: --check capsule
# truth: var_mean of huge numbers overflows: result[0] (variance) is inf, result[1] is finite; float16-free
# source: statistics of unnormalized features, invented
import flips as C, torch
from torch import nn
class M(nn.Module):
    def __init__(s): super().__init__(); s.l = nn.Linear(4, 4)
    def forward(s, x): v, mu = torch.var_mean(s.l(x), 1, keepdim=True); return mu * v  # FAULT
torch.manual_seed(0); m = M(); o = torch.optim.SGD(m.parameters(), 1e-3)
for C.STEP in range(4): m(torch.randn(6, 4) * (1e21 if C.STEP == 2 else 1)).mean().backward(); o.step(); o.zero_grad()
