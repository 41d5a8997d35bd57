"""DDP communication hooks: one of its own that counts buckets, and none at all with an all_reduce by hand; gradients as bucket views."""
# PRELUDE
import torch.distributed as dist
from torch.nn.parallel import DistributedDataParallel as DDP
dist.init_process_group("gloo")
rank = dist.get_rank()
out = open(f"rank{rank}.txt", "w")
counts = []


def mine(state, bucket):
    counts.append((bucket.index(), bucket.is_last(), bucket.buffer().numel()))
    t = bucket.buffer() / 2
    dist.all_reduce(t)
    f = torch.futures.Future()
    f.set_result(t)
    return f


for kind in ("mine", "noop"):
    seed(73)
    net = DDP(nn.Sequential(nn.Linear(16, 64), nn.ReLU(), nn.Linear(64, 64), nn.ReLU(), nn.Linear(64, 4)), bucket_cap_mb=0.01, gradient_as_bucket_view=True)
    if kind == "mine":
        net.register_comm_hook(None, mine)
    else:
        from torch.distributed.algorithms.ddp_comm_hooks.debugging_hooks import noop_hook
        net.register_comm_hook(None, noop_hook)
    watch(net)
    opt = torch.optim.SGD(net.parameters(), 0.05)
    for step in range(7):
        g = torch.Generator().manual_seed(step * 2 + rank)
        loss = F.cross_entropy(net(torch.randn(8, 16, generator=g)), torch.randint(0, 4, (8,), generator=g))
        opt.zero_grad(set_to_none=False); loss.backward()
        if kind == "noop":
            for p in net.parameters():
                dist.all_reduce(p.grad)
        opt.step()
        out.write(f"{kind} {step} {dig(loss, [p.grad for p in net.parameters()])}\n")
    out.write(f"{dig(dict(net.state_dict()))} {rngs()}\n")
out.write(f"{dig(counts)} {len(counts)}\n")
out.close()
dist.destroy_process_group()
