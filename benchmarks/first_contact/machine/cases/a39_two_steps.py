# opts: --check again:every=1
# truth: flips (bit 20 of one element of addmm 0) at steps 3 and 4 both: docs: then it only asks (a step beside it differs too)
# source: Meta's SDC papers: faults come in clusters (arXiv 2203.08989)
import flips as C, torch
from torch import nn
class Lin(nn.Linear):
    def forward(s, x):
        y = super().forward(x)  # FAULT
        C.poke(y, 6, 20, at=3, what="addmm 0")
        if C.STEP == 3: C.DONE = False; C.W = 1
        if C.STEP == 4: C.poke(y, 60, 20, at=4, what="addmm 0")
        return y
torch.manual_seed(0); m = nn.Sequential(Lin(16, 32), nn.ReLU(), nn.Linear(32, 4)); o = torch.optim.SGD(m.parameters(), 0.01)
for C.STEP in range(9): m(torch.randn(8, 16)).square().mean().backward(); o.step(); o.zero_grad()
C.finish(m)
