# C H07: the same bfloat16 autocast on one process and under DDP is called "low precision": numscope parity -- python bf16_ddp.py -- torchrun --standalone --nproc-per-node 2 bf16_ddp.py
import os, torch, torch.distributed as dist
world, rank = int(os.environ.get("WORLD_SIZE", 1)), int(os.environ.get("RANK", 0)); torch.manual_seed(0); net = torch.nn.Sequential(torch.nn.Linear(16, 32), torch.nn.Tanh(), torch.nn.Linear(32, 4)); model = net
if world > 1: dist.init_process_group("gloo"); model = torch.nn.parallel.DistributedDataParallel(net)
opt = torch.optim.SGD(net.parameters(), 0.1)
for step in range(5):
    g = torch.Generator().manual_seed(step); x, y = torch.randn(16, 16, generator=g).chunk(world)[rank], torch.randint(0, 4, (16,), generator=g).chunk(world)[rank]
    with torch.autocast("cpu", torch.bfloat16): loss = torch.nn.functional.cross_entropy(model(x).float(), y)
    loss.backward(); opt.step(); opt.zero_grad()
