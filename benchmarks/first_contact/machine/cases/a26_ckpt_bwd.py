# opts: --check again:every=1
# truth: bit 23 of one element of silu's result in the recomputation (checkpoint) of block 1 within backward, step 4: gradients wrong, outputs right
# source: torch.utils.checkpoint; recomputation faults
import flips as C, torch
from torch import nn
from torch.utils.checkpoint import checkpoint
IN = 0
class B(nn.Module):
    def __init__(s, k): super().__init__(); s.k, s.a, s.b = k, nn.Linear(32, 64), nn.Linear(64, 32)
    def forward(s, x):
        global IN
        IN += s.k == 1
        h = nn.functional.silu(s.a(x))  # FAULT
        if s.k == 1 and IN % 2 == 0: C.poke(h, 123, 23, what="silu in recomputation")
        return x + s.b(h)
class Net(nn.Module):
    def __init__(s): super().__init__(); s.i, s.bs, s.o = nn.Linear(8, 32), nn.ModuleList(B(k) for k in range(3)), nn.Linear(32, 1)
    def forward(s, x):
        x = s.i(x)
        for b in s.bs: x = checkpoint(b, x, use_reentrant=False)
        return s.o(x)
torch.manual_seed(0); m = Net(); o = torch.optim.AdamW(m.parameters(), 1e-3)
for C.STEP in range(8):
    m(torch.randn(8, 8)).square().mean().backward(); o.step(); o.zero_grad()
C.finish(m, o)
