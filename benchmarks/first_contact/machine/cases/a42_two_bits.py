# opts: --check again:every=1
# truth: two bits (20 and 3) of one element of addmm 0 at step 4 (a burst): not one bit: may only ask, but "may be the machine"
# source: arXiv 2102.11245 (multi-bit)
import flips as C, torch
from torch import nn
def poke2(y):
    if C.FAULT and C.STEP == 4 and not C.DONE and C.os.getpid() == C.PID: C.poke(y, 6, 20, what="two bits"); C.flip(y, 6, 3)
    return y
C.poke2 = poke2
class Lin(nn.Linear):
    def forward(s, x): return C.poke2(super().forward(x))  # FAULT
torch.manual_seed(0); m = nn.Sequential(Lin(16, 32), nn.ReLU(), nn.Linear(32, 4)); o = torch.optim.SGD(m.parameters(), 0.01)
for C.STEP in range(8): m(torch.randn(8, 16)).square().mean().backward(); o.step(); o.zero_grad()
C.finish(m)
