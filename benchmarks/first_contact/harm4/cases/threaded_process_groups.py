"""Ranks that are threads of one process (torch's multi-threaded process group of its tests): DDP's averages by hand, all_gather, a broadcast model."""
# PRELUDE
import threading
import torch.distributed as dist
from torch.testing._internal.distributed.multi_threaded_pg import _install_threaded_pg, _uninstall_threaded_pg, ProcessLocalGroup

world = _install_threaded_pg()
torch._C._distributed_c10d._set_thread_isolation_mode(True)
out, errors = {}, []
store = dist.HashStore()


def rank(r):
    try:
        dist.init_process_group("threaded", rank=r, world_size=2, store=store)
        m = nn.Sequential(nn.Linear(8, 4))
        with torch.no_grad():
            g = torch.Generator().manual_seed(5)
            for p in m.parameters():
                p.copy_(torch.randn(p.shape, generator=g) * 0.1)
        W(m)
        opt = torch.optim.SGD(m.parameters(), 0.05)
        for s in range(4):
            x, y = batch(s + 10 * r)
            opt.zero_grad()
            loss = F.mse_loss(m(x), y)
            loss.backward()
            for p in m.parameters():
                dist.all_reduce(p.grad)
                p.grad /= 2
            opt.step()
        ts = [torch.zeros(1) for _ in range(2)]
        dist.all_gather(ts, loss.detach().reshape(1))
        out[r] = (float(loss.detach()).hex(), M(m), H(ts))
        dist.destroy_process_group()
    except BaseException as e:
        errors.append(f"{type(e).__name__} {e}")
        ProcessLocalGroup.exception_handle(e)


ts = [threading.Thread(target=rank, args=(r,), name=f"rank-{r}") for r in range(2)]
for t in ts:
    t.start()
for t in ts:
    t.join()
torch._C._distributed_c10d._set_thread_isolation_mode(False)
_uninstall_threaded_pg()
print(sorted(out.items()), errors)
