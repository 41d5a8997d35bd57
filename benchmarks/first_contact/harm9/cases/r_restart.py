"""torchrun --max-restarts 1: rank 1 dies in its first life while rank 0 waits in a collective; both resume from the snapshot."""
# PRELUDE
import torch.distributed as dist
from torch.nn.parallel import DistributedDataParallel as DDP
rank, life = int(os.environ["RANK"]), int(os.environ["TORCHELASTIC_RESTART_COUNT"])
store = dist.TCPStore(os.environ["MASTER_ADDR"], int(os.environ["MASTER_PORT"]), None, False)
dist.init_process_group("gloo", store=dist.PrefixStore(f"life{life}", store), rank=rank, world_size=2)
seed(70)
net = DDP(nn.Sequential(nn.Linear(6, 16), nn.ReLU(), nn.Linear(16, 2)))
opt = torch.optim.SGD(net.parameters(), 0.1, momentum=0.9)
begin = 0
if os.path.exists("snap.pt"):
    s = torch.load("snap.pt")
    net.module.load_state_dict(s["net"]); opt.load_state_dict(s["opt"])
    begin = s["step"]
watch(net)
for step in range(begin, 12):
    g = torch.Generator().manual_seed(step * 2 + rank)
    loss = F.cross_entropy(net(torch.randn(8, 6, generator=g)), torch.randint(0, 2, (8,), generator=g))
    opt.zero_grad(); loss.backward()
    if step == 7 and life == 0 and rank == 1:
        os._exit(13)
    opt.step()
    if step % 3 == 2 and rank == 0:
        torch.save({"net": net.module.state_dict(), "opt": opt.state_dict(), "step": step + 1}, "snap.tmp")
        os.replace("snap.tmp", "snap.pt")
    if life:
        open(f"rank{rank}.txt", "a").write(f"{step} {dig(loss)}\n")
open(f"rank{rank}.txt", "a").write(f"{life} {begin} {dig(dict(net.state_dict()), opt.state_dict()['state'])} {rngs()}\n")
dist.barrier()
dist.destroy_process_group()
