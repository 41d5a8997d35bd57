# ranks: 2
# opts: --on-nonfinite heal --log-dir log
# modes: wf wr
# truth: DDP, two ranks, fp16 autocast, rank 1's data alone overflow at step 3 and on (x 3000): both ranks leave step 3 out, both heal the same module, weights equal at the end; resumed: healed from the start
# source: docs/run.md (on all ranks of DDP)
import flips as C, torch, torch.distributed as D
from torch import nn
D.init_process_group("gloo"); r = D.get_rank(); torch.manual_seed(0)
m = nn.parallel.DistributedDataParallel(nn.Sequential(nn.Linear(16, 32), nn.ReLU(), nn.Linear(32, 16), nn.LayerNorm(16), nn.Linear(16, 1))); torch.manual_seed(10 + r); o = torch.optim.AdamW(m.parameters(), 1e-4)
with torch.no_grad(): m.module[2].weight.mul_(300)
for C.STEP in range(10):
    x = torch.randn(8, 16) * (3000 if r and C.STEP >= 3 else 1)
    with torch.autocast("cpu", torch.float16): l = m(x).float().square().mean()
    l.backward(); b = m.module[0].weight.detach().clone(); o.step(); print("rank", r, "step", C.STEP, "moved", not torch.equal(b, m.module[0].weight), flush=True); o.zero_grad()
C.finish([p for p in m.parameters()]); D.destroy_process_group()
