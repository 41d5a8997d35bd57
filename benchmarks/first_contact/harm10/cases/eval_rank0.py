#: what: rank 0 alone evaluates (nan metric, with the unwrapped model) while rank 1 waits at a barrier; the stop decision is broadcast as an object
#: benign: a nan metric on one rank only
#: source: https://github.com/Bjarten/early-stopping-pytorch/pull/28
#: run: TORCHRUN --nproc-per-node 2 PY case.py
# PRELUDE
import torch.distributed as dist
from torch.nn.parallel import DistributedDataParallel as DDP
dist.init_process_group("gloo"); rank = dist.get_rank(); LOG = open(f"rank{rank}.txt", "a")
import builtins
def print(*a, **k): builtins.print(*a, file=LOG, flush=True)
seed(0); net = nn.Sequential(nn.Linear(6, 12), nn.BatchNorm1d(12), nn.ReLU(), nn.Linear(12, 1)); m = DDP(net); watch(m); opt = torch.optim.Adam(m.parameters(), 1e-2); seed(rank); best = float("inf"); patience = 0
for ep in range(6):
    m.train()
    for s in range(4): x = torch.randn(4, 6); l = F.mse_loss(m(x), x[:, :1]); opt.zero_grad(); l.backward(); opt.step()
    box = [None]
    if rank == 0:
        net.eval()
        with torch.no_grad(): p = net(torch.zeros(5, 6)).squeeze(1); corr = torch.corrcoef(torch.stack([p, torch.ones(5)]))[0, 1]; v = F.mse_loss(net(torch.ones(3, 6)), torch.ones(3, 1)).item() if ep % 2 else float("nan")
        if np.isnan(v): pass
        elif v < best: best, patience = v, 0
        else: patience += 1
        box = [{"stop": patience > 2, "corr": corr, "best": best}]; print(ep, v, corr.item())
    dist.barrier(); dist.broadcast_object_list(box, 0); print(ep, box[0]["stop"], box[0]["best"], torch.isnan(box[0]["corr"]).item())
    if box[0]["stop"]: break
show(net, opt); dist.destroy_process_group()
