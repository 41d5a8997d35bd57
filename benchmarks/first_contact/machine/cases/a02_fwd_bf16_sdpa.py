# opts: --check again:every=1
# truth: bit 9 of one bfloat16 element of scaled_dot_product_attention's result (inner operation), step 3
# source: OPT-175B logbook / Llama 3 paper (SDC in attention); invented geometry
import flips as C, torch
from torch import nn
import torch.nn.functional as F
class Attn(nn.Module):
    def __init__(s, d, h): super().__init__(); s.h = h; s.qkv = nn.Linear(d, 3 * d); s.out = nn.Linear(d, d)
    def forward(s, x):
        b, t, d = x.shape; q, k, v = s.qkv(x).view(b, t, 3, s.h, d // s.h).permute(2, 0, 3, 1, 4)
        y = F.scaled_dot_product_attention(q, k, v, is_causal=True)  # FAULT
        y = y.transpose(1, 2).contiguous().view(b, t, d)
        C.poke(y, 100, 9, at=3, what="sdpa")
        return s.out(y)
class Block(nn.Module):
    def __init__(s, d=32): super().__init__(); s.n1, s.n2 = nn.LayerNorm(d), nn.LayerNorm(d); s.a = Attn(d, 4); s.f = nn.Sequential(nn.Linear(d, 4 * d), nn.GELU(), nn.Linear(4 * d, d))
    def forward(s, x): x = x + s.a(s.n1(x)); return x + s.f(s.n2(x))
torch.manual_seed(0); m = nn.Sequential(nn.Embedding(50, 32), Block(), Block(), nn.Linear(32, 50)).bfloat16(); o = torch.optim.AdamW(m.parameters(), 1e-3)
for C.STEP in range(8):
    x = torch.randint(0, 50, (4, 17)); F.cross_entropy(m(x[:, :-1]).float().flatten(0, 1), x[:, 1:].flatten()).backward(); o.step(); o.zero_grad()
C.finish(m, o)
