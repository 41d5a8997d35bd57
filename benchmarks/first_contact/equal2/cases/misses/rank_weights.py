# C F15: ranks that reduce by hand and begin with other weights: numscope parity -- python rank_weights.py -- torchrun --nproc-per-node 2 rank_weights.py
import os, torch, torch.distributed as dist
world, rank = int(os.environ.get("WORLD_SIZE", 1)), int(os.environ.get("RANK", 0))
if world > 1: dist.init_process_group("gloo")
torch.manual_seed(rank); net = torch.nn.Sequential(torch.nn.Linear(8, 16), torch.nn.Tanh(), torch.nn.Linear(16, 2)); opt = torch.optim.SGD(net.parameters(), 0.1)
for step in range(5):
    x = torch.randn(8, 8, generator=torch.Generator().manual_seed(step)).chunk(world)[rank]; net(x).square().mean().backward()
    if world > 1: [(dist.all_reduce(p.grad), p.grad.div_(world)) for p in net.parameters()]
    opt.step(); opt.zero_grad()
