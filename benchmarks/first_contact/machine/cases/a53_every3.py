# opts: --check again:every=3
# truth: :every=3, flip at step 3: is step 3 one of those checked? docs do not say where the counting begins
# source: a run that ends; invented
import flips as C, torch
from torch import nn
class Lin(nn.Linear):
    def forward(s, x): return C.poke(super().forward(x), 6, 20, at=3, what="addmm 0")  # FAULT
torch.manual_seed(0); m = nn.Sequential(Lin(16, 32), nn.ReLU(), nn.Linear(32, 4)); o = torch.optim.SGD(m.parameters(), 0.01)
for C.STEP in range(9): m(torch.randn(8, 16)).square().mean().backward(); o.step(); o.zero_grad()
C.finish(m)
