# opts: --check again:every=1
# truth: bit 27 of one element of softmax inside of written-out attention (no module's output), step 4
# source: transformers' eager attention; fault as arXiv 2102.11245
import flips as C, torch
from torch import nn
import torch.nn.functional as F
class Attn(nn.Module):
    def __init__(s, d): super().__init__(); s.q, s.k, s.v, s.o = (nn.Linear(d, d) for _ in range(4))
    def forward(s, x):
        q, k, v = s.q(x), s.k(x), s.v(x)
        w = q @ k.transpose(1, 2) / 5.6
        p = w.softmax(-1)  # FAULT
        C.poke(p, 55, 27, what="softmax")
        y = p @ v
        return s.o(y)
torch.manual_seed(0); m = nn.Sequential(nn.Linear(8, 32), Attn(32), nn.LayerNorm(32), Attn(32), nn.Linear(32, 4)); o = torch.optim.Adam(m.parameters(), 1e-3)
for C.STEP in range(8):
    m(torch.randn(4, 10, 8)).square().mean().backward(); o.step(); o.zero_grad()
C.finish(m, o)
