#: what: torchrun --max-restarts 1: rank 1 fails at step 6 of the first attempt, both are started again and go on from a snapshot
#: source: https://github.com/pytorch/tutorials/pull/2049
#: run: TORCHRUN --nproc-per-node 2 --max-restarts 1 PY case.py
#: drop: stdout
# PRELUDE
import torch.distributed as dist
from torch.nn.parallel import DistributedDataParallel as DDP
dist.init_process_group("gloo", init_method="file:///tmp/fcrdzv-%s-%s" % (os.environ["FC_MARK"], os.environ.get("TORCHELASTIC_RESTART_COUNT", "0")), rank=int(os.environ["RANK"]), world_size=2); rank = dist.get_rank(); LOG = open(f"rank{rank}.txt", "a")
import builtins
def print(*a, **k): builtins.print(*a, file=LOG, flush=True)
attempt = int(os.environ.get("TORCHELASTIC_RESTART_COUNT", 0)); seed(0); net = nn.Sequential(nn.Linear(4, 8), nn.Dropout(0.1), nn.Linear(8, 2)); opt = torch.optim.Adam(net.parameters(), 1e-2); start = 0
if os.path.exists("snap.pt"): d = torch.load("snap.pt", weights_only=False); net.load_state_dict(d["m"]); opt.load_state_dict(d["o"]); start = d["s"]; print("resumed", start)
m = DDP(net); watch(m)
for s in range(start, 12):
    seed(100 * rank + s); x = torch.randn(4, 4); l = F.cross_entropy(m(x), (x[:, 0] > 0).long()); opt.zero_grad(); l.backward(); opt.step()
    if s % 4 == 3:
        if rank == 0: torch.save({"m": net.state_dict(), "o": opt.state_dict(), "s": s + 1}, "snap.tmp"); os.replace("snap.tmp", "snap.pt")
        dist.barrier()
    if rank == 1 and s == 6 and attempt == 0: print("fails"); LOG.close(); sys.exit(7)
    if attempt: print(s, l.item())
print("attempt", attempt); show(net, opt); dist.destroy_process_group()
