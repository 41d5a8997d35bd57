# opts: --check again:every=1 --on-nonfinite warn
# truth: bit 30 of one element of gelu's result at step 4: a value of about 1e38, which then overflows (inf/nan): hardware, not math
# source: arXiv 2605.04213 as named in docs (one in a hundred is nan or inf)
import flips as C, torch
from torch import nn
class G(nn.Module):
    def forward(s, x): return C.poke(nn.functional.gelu(x), 40, 30, what="gelu")  # FAULT
torch.manual_seed(0); m = nn.Sequential(nn.Linear(16, 32), G(), nn.Linear(32, 32), nn.LayerNorm(32), nn.Linear(32, 1)); o = torch.optim.AdamW(m.parameters(), 1e-3)
for C.STEP in range(8):
    m(torch.randn(8, 16)).square().mean().backward(); o.step(); o.zero_grad()
C.finish([])
