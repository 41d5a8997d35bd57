#: what: DDP spreads one rank's nan gradient to all; the total norm is not finite on every rank and the step is left out
#: benign: nan gradients that are never applied
#: source: https://github.com/facebookresearch/habitat-lab/issues/2226
#: run: TORCHRUN --nproc-per-node 2 PY case.py
# PRELUDE
import torch.distributed as dist
from torch.nn.parallel import DistributedDataParallel as DDP
dist.init_process_group("gloo"); rank = dist.get_rank(); LOG = open(f"rank{rank}.txt", "a")
import builtins
def print(*a, **k): builtins.print(*a, file=LOG, flush=True)
seed(0); net = nn.Sequential(nn.Linear(6, 12), nn.ReLU(), nn.Linear(12, 2)); m = DDP(net, gradient_as_bucket_view=True); watch(m); opt = torch.optim.AdamW(m.parameters(), 1e-2); sch = torch.optim.lr_scheduler.LinearLR(opt, 0.1, total_iters=5); seed(rank); skipped = 0
for s in range(16):
    x = torch.randn(4, 6); out = m(x); l = F.cross_entropy(out, (x[:, 0] > 0).long())
    if rank == 1 and s % 5 == 3: l = l + (out - out.detach()).pow(2).sum().sqrt()
    opt.zero_grad(); l.backward(); n = nn.utils.clip_grad_norm_(m.parameters(), 1.0)
    if torch.isfinite(n): opt.step(); sch.step()
    else: skipped += 1
    print(s, l.item(), n.item())
print(skipped); show(net, opt); dist.destroy_process_group()
