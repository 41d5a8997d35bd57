import math
import torch
import torch.nn.functional as F
from torch import nn

torch.set_num_threads(1)
torch.manual_seed(0)

# src: https://github.com/areal-project/AReaL/pull/303
class Pol(nn.Module):
    def __init__(self):
        super().__init__(); self.f = nn.Sequential(nn.Linear(6, 32), nn.Tanh(), nn.Linear(32, 4))
    def forward(self, s, a, old, adv):
        lp = self.f(s).log_softmax(1).gather(1, a[:, None])[:, 0]
        ratio = torch.exp(lp - old)
        return -torch.min(ratio * adv, ratio.clamp(0.8, 1.2) * adv).mean()
pol = Pol(); opt = torch.optim.Adam(pol.parameters(), lr=1e-3)
for step in range(8):
    s = torch.randn(8, 6); a = torch.randint(0, 4, (8,)); adv = torch.randn(8)
    with torch.no_grad(): old = pol.f(s).log_softmax(1).gather(1, a[:, None])[:, 0]
    if step == 5: old[3] = -200.; adv[3] = -1.       # stale behaviour policy
    loss = pol(s, a, old, adv); opt.zero_grad(); loss.backward(); opt.step(); print(step, repr(loss.item()))
