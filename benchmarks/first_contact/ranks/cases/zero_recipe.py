# ZeroRedundancyOptimizer against Adam under mp.spawn, two jobs of two ranks after another in one script
from fcutil import *
import torch.multiprocessing as mp
from torch.distributed.optim import ZeroRedundancyOptimizer
from torch.nn.parallel import DistributedDataParallel as DDP
def job(r, w, port, zero):
    os.environ.update(MASTER_ADDR="127.0.0.1", MASTER_PORT=str(port))
    torch.manual_seed(0)
    dist.init_process_group("gloo", rank=r, world_size=w)
    net = nn.Sequential(*[nn.Linear(32, 32) for _ in range(6)]); ddp = DDP(net)
    opt = ZeroRedundancyOptimizer(ddp.parameters(), optimizer_class=torch.optim.Adam, lr=0.01) if zero else torch.optim.Adam(ddp.parameters(), lr=0.01)
    for step in range(6):
        x, y = data(step, r, 20, 32, 32)
        opt.zero_grad()
        loss = F.mse_loss(ddp(x), y); loss.backward(); opt.step()
    say("zero" if zero else "adam", "rank", r, loss.item(), digest(net.state_dict()))
    dist.destroy_process_group()
if __name__ == "__main__":
    for zero in (True, False):
        mp.spawn(job, args=(2, free_port(), zero), nprocs=2, join=True)
        say("done", zero)
