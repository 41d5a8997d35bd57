"""4 flips with DDP of 2 gloo ranks, on rank 1 alone; flips_ddp.py under mp.spawn, numscope.watch on the DDP model in each rank."""
import json, os, sys, time
import torch, torch.distributed as dist, torch.multiprocessing as mp
import torch.nn.functional as F
from torch import nn
from flips import Flip, MLP, Enc, LOSS_OPS
from contextlib import nullcontext
PLAN = [("MLP", "forward", 20, 3), ("Enc", "forward", 2, 17), ("MLP", "backward", 21, 8), ("Enc", "backward", 24, 12)]
def run(m, opt, data, mode, phase):
    out = []; torch.manual_seed(5 + dist.get_rank())
    for s, (x, y) in enumerate(data):
        on = lambda p: mode if mode and s == 1 and p == phase else nullcontext()
        opt.zero_grad()
        with on("forward"): o = m(x)
        l = F.cross_entropy(o, y)
        with on("backward"): l.backward()
        opt.step(); out.append(l.item())
    return out
def make(name, rank):
    torch.manual_seed(1); m = nn.parallel.DistributedDataParallel({"MLP": MLP, "Enc": Enc}[name]()); torch.manual_seed(3 + rank)
    return m, torch.optim.SGD(m.parameters(), .05), [(torch.randn(8, 16) if name == "MLP" else torch.randn(4, 7, 6), torch.randint(5, (8 if name == "MLP" else 4,))) for _ in range(6)]
def main(rank, port):
    os.environ.update(MASTER_ADDR="127.0.0.1", MASTER_PORT=str(port)); torch.set_num_threads(1); dist.init_process_group("gloo", rank=rank, world_size=2)
    import numscope
    for name, phase, bit, k in PLAN:
        l = Flip(None); m, o, d = make(name, rank); run(m, o, d, l, phase); ops = [q for q in l.list if not (phase == "backward" and q[1] in LOSS_OPS) and not q[1].startswith("allreduce")]
        at, op, _ = ops[k % len(ops)]
        m, o, d = make(name, rank); bare = run(m, o, d, Flip(at, bit) if rank == 1 else None, phase)
        m, o, d = make(name, rank); f = Flip(at, bit) if rank == 1 else None; scope = numscope.watch(m, check="again:at=1", on_nonfinite="note"); t = time.time(); got = run(m, o, d, f, phase); t = time.time() - t; scope.close()
        row = dict(rank=rank, name=name, phase=phase, bit=bit, op=op, done=f and f.done, same=got == bare, s=round(t, 2), alerts=[str(a) for a in scope.alerts]); print(json.dumps(row) + "\n", end="", flush=True)
    dist.destroy_process_group()
if __name__ == "__main__": mp.spawn(main, (29611,), nprocs=2)
