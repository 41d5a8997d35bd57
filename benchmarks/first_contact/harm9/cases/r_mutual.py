"""Deep mutual learning: each rank trains a different architecture, logits are gathered; rank 0 alone evaluates for two seconds while rank 1 waits at a barrier."""
# PRELUDE
import time
import torch.distributed as dist
dist.init_process_group("gloo")
rank = dist.get_rank()
seed(79)
net = nn.Sequential(nn.Linear(6, 16), nn.ReLU(), nn.Linear(16, 3)) if rank == 0 else nn.Sequential(nn.Linear(6, 8), nn.LayerNorm(8), nn.Tanh(), nn.Linear(8, 8), nn.Tanh(), nn.Linear(8, 3))
watch(net)
opt = torch.optim.Adam(net.parameters(), 1e-2) if rank == 0 else torch.optim.SGD(net.parameters(), 0.1)
out = open(f"rank{rank}.txt", "w")
for step in range(12):
    g = torch.Generator().manual_seed(step)
    x, y = torch.randn(16, 6, generator=g), torch.randint(0, 3, (16,), generator=g)
    o = net(x)
    both = [torch.empty(16, 3) for _ in range(2)]
    dist.all_gather(both, o.detach())
    loss = F.cross_entropy(o, y) + F.kl_div(o.log_softmax(1), both[1 - rank].softmax(1), reduction="batchmean")
    for _ in range(1 + rank):
        opt.zero_grad()
        (loss if _ == 0 else F.cross_entropy(net(x), y)).backward()
        opt.step()
    if step % 6 == 5:
        if rank == 0:
            with torch.no_grad():
                e = net(x / 0)
                time.sleep(2)
            out.write(dig(e) + "\n")
        dist.barrier()
    objs = [None, None]
    dist.all_gather_object(objs, {"loss": loss.item(), "acc": float("nan") if step % 4 else 1.0})
    out.write(f"{step} {dig(loss, objs)}\n")
out.write(f"{dig(dict(net.state_dict()), opt.state_dict()['state'])} {rngs()}\n")
out.close()
dist.destroy_process_group()
