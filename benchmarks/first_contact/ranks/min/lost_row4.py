# DDP and SGD on three ranks; after each step V=m: weights averaged by hand with all_reduce; V=n: one all_reduce of a number (a logged loss); V=b: a barrier; V=k: PostLocalSGD without destroy_process_group
from fcutil import *
import torch.distributed.algorithms.model_averaging.averagers as averagers
from torch.distributed.optim import PostLocalSGDOptimizer
from torch.nn.parallel import DistributedDataParallel as DDP
V = os.environ["V"]
dist.init_process_group("gloo"); r = dist.get_rank(); torch.manual_seed(0); net = MLP(); ddp = DDP(net)
opt = torch.optim.SGD(ddp.parameters(), 0.05)
if V == "k": opt = PostLocalSGDOptimizer(optim=opt, averager=averagers.PeriodicModelAverager(period=4, warmup_steps=3))
for step in range(13):
    x, y = data(step, r); opt.zero_grad(); loss = F.mse_loss(ddp(x), y); loss.backward(); opt.step()
    if V == "m" and step % 4 == 3:
        for p in net.parameters(): dist.all_reduce(p.data); p.data /= 3
    if V == "n": dist.all_reduce(loss.detach().clone())
    if V == "b": dist.barrier()
if V != "k": dist.destroy_process_group()
