# opts: --check precision:at=1,4
# truth: sdpa with scale=0.7, float mask (bias up to +12, -inf), enable_gqa, in b16 autocast: largest logit computed here from q, k (float32 of the bf16 operands)
# source: ALiBi / T5 relative bias; arXiv 2309.14322
import flips as C, torch
from torch import nn
import torch.nn.functional as F
LOG = None
class At(nn.Module):
    def __init__(s): super().__init__(); s.q, s.k, s.v, s.o = nn.Linear(64, 64), nn.Linear(64, 32), nn.Linear(64, 32), nn.Linear(64, 64); s.bias = torch.randn(4, 10, 10) * 5
    def forward(s, x):
        q = s.q(x).view(-1, 10, 4, 16).transpose(1, 2); k, v = (l(x).view(-1, 10, 2, 16).transpose(1, 2) for l in (s.k, s.v)); q = q * 3
        m = s.bias.masked_fill(torch.ones(10, 10).triu(1).bool(), float("-inf")).to(q.dtype)
        if LOG is not None:
            with torch.no_grad(), torch.autocast("cpu", enabled=False):
                w = q.float() @ k.float().repeat_interleave(2, 1).transpose(2, 3) * 0.7; LOG.append(("with bias", (w + m.float()).max().item(), "without", w.max().item(), "abs", w.abs().max().item()))
        return s.o(F.scaled_dot_product_attention(q, k, v, attn_mask=m, scale=0.7, enable_gqa=True).transpose(1, 2).flatten(2))
torch.manual_seed(0); m = nn.Sequential(nn.Linear(8, 64), At(), nn.LayerNorm(64), At(), nn.Linear(64, 2)); o = torch.optim.AdamW(m.parameters(), 1e-3)
for C.STEP in range(6):
    LOG = [] if C.STEP in (1, 4) and C.os.getpid() == C.PID else None
    with torch.autocast("cpu", torch.bfloat16): l = m(torch.randn(4, 10, 8) * 2).float().square().mean()
    if LOG: print("TRUTH step", C.STEP, LOG)
    LOG = None; l.backward(); o.step(); o.zero_grad()
C.finish(m)
