"""The process group is destroyed and made anew by stores with other prefixes; rank 1 leaves at half time and rank 0 goes on alone with a world of one."""
# PRELUDE
import torch.distributed as dist
from torch.nn.parallel import DistributedDataParallel as DDP
rank = int(os.environ["RANK"])
out = open(f"rank{rank}.txt", "w")
seed(78)
model = nn.Sequential(nn.Linear(6, 16), nn.ReLU(), nn.Linear(16, 2))
watch(model)
opt = torch.optim.SGD(model.parameters(), 0.1, momentum=0.9)


def phase(name, world, steps):
    dist.init_process_group("gloo", store=dist.PrefixStore(name, dist.TCPStore(os.environ["MASTER_ADDR"], int(os.environ["MASTER_PORT"]), None, False)), rank=rank, world_size=world)
    net = DDP(model)
    for step in steps:
        g = torch.Generator().manual_seed(step * 2 + rank)
        loss = F.cross_entropy(net(torch.randn(8, 6, generator=g)), torch.randint(0, 2, (8,), generator=g))
        opt.zero_grad(); loss.backward(); opt.step()
        out.write(f"{name} {step} {dig(loss)}\n")
    dist.barrier()
    dist.destroy_process_group()


phase("a", 2, range(5))
phase("b", 2, range(5, 8))
if rank == 0:
    phase("c", 1, range(8, 14))
    with torch.no_grad():
        out.write(dig(model(torch.full((1, 6), math.nan))) + "\n")
out.write(f"{dig(dict(model.state_dict()), opt.state_dict()['state'])} {rngs()}\n")
out.close()
