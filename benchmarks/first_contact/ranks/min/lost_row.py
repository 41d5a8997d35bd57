# DDP with PostLocalSGDOptimizer on three ranks, 13 quick steps, then destroy_process_group and the end: the last steps' rows are not merged, a row of a rank is lost, or a rank counts twice
from fcutil import *
import torch.distributed.algorithms.model_averaging.averagers as averagers
from torch.distributed.optim import PostLocalSGDOptimizer
from torch.nn.parallel import DistributedDataParallel as DDP
dist.init_process_group("gloo"); r = dist.get_rank(); torch.manual_seed(0); net = MLP(); ddp = DDP(net)
opt = PostLocalSGDOptimizer(optim=torch.optim.SGD(ddp.parameters(), 0.05), averager=averagers.PeriodicModelAverager(period=4, warmup_steps=3))
for step in range(int(os.environ.get("STEPS", 13))):
    x, y = data(step, r); opt.zero_grad(); loss = F.mse_loss(ddp(x), y); loss.backward(); opt.step()
    if "SLEEP" in os.environ: time.sleep(float(os.environ["SLEEP"]))
dist.destroy_process_group()
