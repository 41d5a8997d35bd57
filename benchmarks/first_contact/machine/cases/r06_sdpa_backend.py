# ranks: 3
# opts: --check rank:at=2
# truth: rank 2 has the fused CPU attention switched off (math kernel): other bits from attn on, rank 2
# source: pytorch docs sdpa backends
import flips as C, torch, torch.distributed as D
from torch import nn
import torch.nn.functional as F
D.init_process_group("gloo"); r = D.get_rank(); n = D.get_world_size(); BAD = C.FAULT and r == n - 1
class At(nn.Module):
    def forward(s, q): return F.scaled_dot_product_attention(q, q, q, is_causal=True)
class Net(nn.Module):
    def __init__(s): super().__init__(); s.a, s.at, s.c = nn.Linear(32, 64), At(), nn.Linear(64, 4)
    def forward(s, x): return s.c(s.at(s.a(x).view(4, 16, 2, 32).transpose(1, 2)).transpose(1, 2).flatten(2))
if BAD: torch.backends.cuda.enable_flash_sdp(False)
torch.manual_seed(5); t = torch.randn(4, 2, 16, 32); print("TRUTH rank", r, "sdpa bits", C.hashlib.md5(F.scaled_dot_product_attention(t, t, t, is_causal=True).numpy().tobytes()).hexdigest()[:8])
torch.manual_seed(0); m = Net(); m = nn.parallel.DistributedDataParallel(m); torch.manual_seed(100 + r); o = torch.optim.AdamW(m.parameters(), 1e-3)
for C.STEP in range(30):
    l = m(torch.randn(4, 16, 32)).square().mean()
    l.backward(); o.step(); o.zero_grad()
C.finish(m.module); D.destroy_process_group()
