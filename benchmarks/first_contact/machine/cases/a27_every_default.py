# opts: --check again:at=3
# truth: bit 26 of one element of the loss-side Linear's bfloat16-autocast result at step 3, where only step 3 is checked (docs: two further are then checked)
# source: pytorch AMP recipe; fault as arXiv 2102.11245
import flips as C, torch
from torch import nn
class Lin(nn.Linear):
    def forward(s, x): return C.poke(super().forward(x), 6, 10, at=3, what="autocast addmm bf16 of 4")  # FAULT
torch.manual_seed(0); m = nn.Sequential(nn.Linear(16, 32), nn.GELU(), nn.Linear(32, 32), nn.GELU(), Lin(32, 4)); o = torch.optim.AdamW(m.parameters(), 1e-3)
for C.STEP in range(9):
    with torch.autocast("cpu", torch.bfloat16): l = m(torch.randn(8, 16)).float().square().mean()
    l.backward(); o.step(); o.zero_grad()
C.finish(m, o)
