# opts: --check again:every=1
# truth: no hardware; a global counter (in an object that no module holds) changes a scale in each call: first op with another number is aten.mul in Warm
# source: schedules inside of forward (e.g. KL annealing by a global step), pytorch forum
import flips as C, torch
from torch import nn
class S: n = 0
class Warm(nn.Module):
    def forward(s, x):
        S.n += 1
        k = min(1.0, S.n / 100) if C.FAULT else 1.0
        return x * k  # FAULT
torch.manual_seed(0); m = nn.Sequential(nn.Linear(16, 32), nn.Tanh(), Warm(), nn.Linear(32, 1)); o = torch.optim.SGD(m.parameters(), 0.01)
for C.STEP in range(8):
    m(torch.randn(8, 16)).square().mean().backward(); o.step(); o.zero_grad()
C.finish(m)
