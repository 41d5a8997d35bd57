"""DDP of 2 gloo ranks (spawned), dropout, a custom Function, SyncBatchNorm is left out; rank 0 prints."""
from _c import *
import os, torch.distributed as dist, torch.multiprocessing as mp
class Sw(Function):
    @staticmethod
    def forward(ctx, x): ctx.save_for_backward(x); return x * x.sigmoid()
    @staticmethod
    def backward(ctx, g): x, = ctx.saved_tensors; s = x.sigmoid(); return g * s * (1 + x * (1 - s))
class A(nn.Module):
    def forward(self, x): return Sw.apply(x)
def main(rank, port):
    os.environ.update(MASTER_ADDR="127.0.0.1", MASTER_PORT=str(port)); dist.init_process_group("gloo", rank=rank, world_size=2); torch.set_num_threads(1); torch.manual_seed(0)
    m = nn.parallel.DistributedDataParallel(nn.Sequential(nn.Linear(10, 32), A(), nn.Dropout(.1), nn.Linear(32, 3))); torch.manual_seed(rank); o = torch.optim.AdamW(m.parameters(), 1e-3)
    for s in range(6):
        x = torch.randn(16, 10); y = torch.randint(3, (16,)); l = F.cross_entropy(m(x), y); o.zero_grad(); l.backward(); o.step(); dist.all_reduce(t := l.detach().clone())
        if rank == 0: print(s, t.item().hex(), flush=True)
    dist.destroy_process_group()
if __name__ == "__main__": mp.spawn(main, (29577,), nprocs=2)
