# opts: --check again:every=1
# truth: bit 21 of one element of fc's result in the third of four micro-batches of step 2
# source: karpathy/nanoGPT's loop (gradient accumulation)
import flips as C, torch
from torch import nn
class Lin(nn.Linear):
    def forward(s, x):
        y = super().forward(x)  # FAULT
        if MB == 2: C.poke(y, 9, 21, at=2, what="addmm of 2, micro-batch 2")
        return y
torch.manual_seed(0); m = nn.Sequential(nn.Linear(16, 32), nn.SiLU(), Lin(32, 8)); o = torch.optim.AdamW(m.parameters(), 1e-3)
for C.STEP in range(6):
    for MB in range(4): (m(torch.randn(8, 16)).square().mean() / 4).backward()
    torch.nn.utils.clip_grad_norm_(m.parameters(), 1.0); o.step(); o.zero_grad()
C.finish(m, o)
