"""FSDP2 with an EMA of DTensor shards by torch._foreach_lerp_, clipping, gradient norms of local shards and a swap of averaged weights for evaluation must keep shards, versions and outputs."""
# PRELUDE
import torch.distributed as dist
from torch.distributed.device_mesh import init_device_mesh
from torch.distributed.fsdp import fully_shard
from torch.distributed.tensor import DTensor

dist.init_process_group("gloo")
rank = dist.get_rank()
mesh = init_device_mesh("cpu", (2,))
m = net(1, 8, 16, 4)
for l in (m[0], m[2]):
    fully_shard(l, mesh=mesh)
fully_shard(m, mesh=mesh)
W(m)
opt = torch.optim.AdamW(m.parameters(), 1e-2, foreach=True)
ps = list(m.parameters())
ema = [p.detach().clone() for p in ps]
out = []
for s in range(4):
    x, y = batch(10 * s + rank)
    opt.zero_grad()
    loss = F.mse_loss(m(x), y)
    loss.backward()
    n = torch.nn.utils.clip_grad_norm_(ps, 1.0)
    n = n.full_tensor() if isinstance(n, DTensor) else n
    opt.step()
    with torch.no_grad():
        torch._foreach_lerp_(ema, [p.detach() for p in ps], 0.2)
        torch._foreach_mul_([p.to_local() for p in ps], 0.9999)
        norms = torch._foreach_norm([p.grad.to_local() for p in ps])
    out.append(f"{s} {float(loss.detach()).hex()} {H(n)} {H([p.to_local() for p in ps])} {H([e.to_local() for e in ema])} {H(norms)}")
    out.append(f"{s} {[p._version for p in ps]} {[e._version for e in ema]} {[p.to_local()._version for p in ps]} {[str(p.placements) for p in ps][:2]} {[p.grad.to_local().stride() for p in ps]}")
    out.append(f"{s} {H([st[k].to_local() for p, st in opt.state.items() for k in ('exp_avg', 'exp_avg_sq')])}")
keep = [p.detach().clone() for p in ps]
with torch.no_grad():
    for p, e in zip(ps, ema):
        p.copy_(e)
    m.eval()
    e = m(batch(99)[0])
    for p, k in zip(ps, keep):
        p.copy_(k)
    m.train()
out.append(f"eval {H(e)} {H([p.full_tensor() for p in ps])} {[p._version for p in ps]}")
both = [None, None]
dist.all_gather_object(both, out)
if rank == 0:
    for r, lines in enumerate(both):
        for l in lines:
            print(r, l)
dist.destroy_process_group()
