"""Gradients averaged by hand over two ranks (flattened, coalesced, async handles, foreach copies back into .grad views) must keep bits, versions and aliasing of each rank."""
# PRELUDE
import torch.distributed as dist
from torch._utils import _flatten_dense_tensors, _unflatten_dense_tensors

dist.init_process_group("gloo")
rank = dist.get_rank()
m = net(1)
W(m)
ps = list(m.parameters())
opt = torch.optim.AdamW(ps, 1e-2, foreach=True)
out = []
for s in range(6):
    x, y = batch(10 * s + rank)
    opt.zero_grad(set_to_none=s % 2 == 0)
    loss = F.mse_loss(m(x), y)
    loss.backward()
    gs = [p.grad for p in ps]
    if s % 3 == 0:
        flat = _flatten_dense_tensors(gs)
        dist.all_reduce(flat)
        torch._foreach_copy_(gs, list(_unflatten_dense_tensors(flat / 2, gs)))
    elif s % 3 == 1:
        hs = [dist.all_reduce(g, async_op=True) for g in gs]
        for h in hs:
            h.wait()
        torch._foreach_div_(gs, 2)
    else:
        buf = torch.empty(sum(g.numel() for g in gs))
        views, i = [], 0
        for p, g in zip(ps, gs):
            v = buf[i : i + g.numel()].view_as(g)
            v.copy_(g)
            views.append(v)
            p.grad = v
            i += g.numel()
        dist.reduce(buf, 0)
        buf.div_(2)
        dist.broadcast(buf, 0)
        out.append(f"{s} views {[v._version for v in views]} {buf._version} {all(p.grad is v for p, v in zip(ps, views))}")
    norm = torch.nn.utils.clip_grad_norm_(ps, 1.0)
    opt.step()
    stat = torch.stack([loss.detach(), norm])
    allv = [torch.empty(2) for _ in range(2)]
    dist.all_gather(allv, stat)
    sc = torch.empty(1)
    dist.scatter(sc, [torch.tensor([1.0]), torch.tensor([float("nan")])] if rank == 0 else None, src=0)
    out.append(f"{s} {H(allv)} {M(m)} {[p._version for p in ps]} {[p.grad._version for p in ps]} {sc.item()} {stat._version}")
both = [None, None]
dist.all_gather_object(both, out)
if rank == 0:
    for r, lines in enumerate(both):
        for l in lines:
            print(r, l)
dist.destroy_process_group()
