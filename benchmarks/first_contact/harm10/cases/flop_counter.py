#: what: FLOPs of training steps counted by FlopCounterMode (total and table), used for an MFU-like number in the log
#: source: https://github.com/saforem2/ezpz/pull/127
# PRELUDE
from torch.utils.flop_counter import FlopCounterMode
class B(nn.Module):
    def __init__(self): super().__init__(); self.a = nn.MultiheadAttention(16, 2, batch_first=True); self.f = nn.Sequential(nn.Linear(16, 64), nn.GELU(), nn.Linear(64, 16)); self.n = nn.LayerNorm(16)
    def forward(self, x): h = self.n(x); return x + self.f(h + self.a(h, h, h, need_weights=False)[0])
m = nn.Sequential(B(), B(), nn.Linear(16, 5)); watch(m); opt = torch.optim.AdamW(m.parameters(), 1e-3)
for s in range(6):
    x = torch.randn(4, 7, 16); fc = FlopCounterMode(display=False)
    with fc: l = F.cross_entropy(m(x).flatten(0, 1), torch.randint(5, (28,))); l.backward()
    opt.step(); opt.zero_grad(); print(l.item(), fc.get_total_flops(), sorted((k, sum(v.values())) for k, v in fc.get_flop_counts().items())[:4])
print(fc.get_table()); show(m, opt)
