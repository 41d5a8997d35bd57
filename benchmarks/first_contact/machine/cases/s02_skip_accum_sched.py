# opts: --on-nonfinite skip
# modes: bh wf
# truth: accumulation of 2; the second micro-batch of step 4 is bad (log(0) in the model): whole step left out, dropout's generator and scheduler go on as in the twin
# source: nanoGPT's loop
import flips as C, torch
from torch import nn
class M(nn.Module):
    def __init__(s): super().__init__(); s.a, s.d, s.b = nn.Linear(8, 16), nn.Dropout(0.2), nn.Linear(16, 1)
    def forward(s, x, z): return s.b(s.d(s.a(x).tanh())) + torch.log(z)
torch.manual_seed(0); m = M(); o = torch.optim.SGD(m.parameters(), 0.05, momentum=0.9); sch = torch.optim.lr_scheduler.ExponentialLR(o, 0.9)
for C.STEP in range(9):
    for k in range(2):
        z = torch.ones(8, 1) * (0 if C.STEP == 4 and k and C.FAULT else 1); m(torch.randn(8, 8), z).square().mean().backward()
    if not (C.A.healthy and C.STEP == 4): o.step()
    sch.step(); o.zero_grad()
C.finish(m, o)
