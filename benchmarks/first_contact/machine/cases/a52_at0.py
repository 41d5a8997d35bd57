# opts: --check again:at=0
# truth: bit 20 of one element of addmm 0 in step 0, asked for by :at=0
# source: a run that ends; invented
import flips as C, torch
from torch import nn
class Lin(nn.Linear):
    def forward(s, x): return C.poke(super().forward(x), 6, 20, at=0, what="addmm 0")  # FAULT
torch.manual_seed(0); m = nn.Sequential(Lin(16, 32), nn.ReLU(), nn.Linear(32, 4)); o = torch.optim.SGD(m.parameters(), 0.01)
for C.STEP in range(6): m(torch.randn(8, 16)).square().mean().backward(); o.step(); o.zero_grad()
C.finish(m)
