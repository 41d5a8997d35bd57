# opts: --on-nonfinite heal --log-dir log
# modes: wf wr
# truth: fp16 autocast-free half weights... here fp16 autocast; activations of blk.1.down overflow 65504 from step 4 on: heal leaves step 4 out and keeps that layer in float32: no further step is skipped; resumed run with the same log-dir begins healed and skips none
# source: huggingface/transformers T5 fp16 threads (#10830: keep wo in float32)
import flips as C, torch
from torch import nn
class FF(nn.Module):
    def __init__(s): super().__init__(); s.up, s.down = nn.Linear(16, 64), nn.Linear(64, 16)
    def forward(s, x): return s.down(s.up(x).relu() * (400.0 if C.STEP >= 4 else 1.0) ) / 400
class Blk(nn.Module):
    def __init__(s): super().__init__(); s.n, s.ff = nn.LayerNorm(16), FF()
    def forward(s, x): return x + s.ff(s.n(x) * (1 if x is None else 1))
torch.manual_seed(0); m = nn.Sequential(nn.Linear(16, 16), Blk(), Blk(), nn.Linear(16, 1))
with torch.no_grad(): m[2].ff.up.weight.mul_(50); m[2].ff.down.weight.mul_(20)
o = torch.optim.SGD(m.parameters(), 1e-6); w0 = None
for C.STEP in range(12):
    with torch.autocast("cpu", torch.float16): l = m(torch.randn(8, 16)).float().square().mean()
    l.backward(); b = m[0].weight.detach().clone(); o.step(); print("step", C.STEP, "loss", l.item(), "moved", not torch.equal(b, m[0].weight)); o.zero_grad()
print("finite", all(p.isfinite().all() for p in m.parameters())); C.finish(m)
