"""From areal-project/AReaL issue 312 (also verl-project/verl pull 3655).
Wrong: under FSDP2 the gradient norm is computed of each rank's shards and clipped by that: ranks scale their shards differently.
Could know: partly (hand-written; the shards of one gradient are multiplied by different factors on the ranks).
"""
import sys, torch, torch.nn as nn, torch.nn.functional as F, torch.distributed as dist
from torch.distributed.device_mesh import init_device_mesh
from torch.distributed.fsdp import fully_shard
H = "--healthy" in sys.argv
dist.init_process_group("gloo"); R, W = dist.get_rank(), dist.get_world_size(); torch.set_num_threads(1); torch.manual_seed(0)
net = nn.Sequential(nn.Linear(16, 64), nn.GELU(), nn.Linear(64, 64), nn.GELU(), nn.Linear(64, 4)); mesh = init_device_mesh("cpu", (W,))
for m in net:
    if isinstance(m, nn.Linear): fully_shard(m, mesh=mesh)
fully_shard(net, mesh=mesh); opt = torch.optim.AdamW(net.parameters(), 3e-3); w = torch.randn(16, 4); torch.manual_seed(2 + R); f = []
for step in range(80):
    x = torch.randn(16, 16); loss = F.cross_entropy(net(x) * 3, (x @ w).argmax(1)); opt.zero_grad(); loss.backward()
    g = [p.grad.to_local() for p in net.parameters()]; sq = sum((t ** 2).sum() for t in g)
    if H: dist.all_reduce(sq)
    scale = (0.5 / (sq.sqrt() + 1e-6)).clamp(max=1.)
    for t in g: t.mul_(scale)
    f.append(scale.item()); opt.step()
    if step % 20 == 0 and R == 0: print(step, round(loss.item(), 4), flush=True)
t = torch.tensor(f); o = [torch.zeros_like(t) for _ in range(W)]; dist.all_gather(o, t)
if R == 0: print("check: largest difference of the ranks' clip factors", (o[0] - o[1]).abs().max().item(), flush=True)
dist.barrier(); import gc, time; gc.collect(); dist.destroy_process_group(); time.sleep(0.5)
