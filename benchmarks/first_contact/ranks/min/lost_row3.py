# as local_sgd, parts by V: h the hook with subgroups, o the PostLocalSGDOptimizer, d a digest of the weights after each step
from fcutil import *
import torch.distributed.algorithms.model_averaging.averagers as averagers
from torch.distributed.algorithms.ddp_comm_hooks.post_localSGD_hook import PostLocalSGDState, post_localSGD_hook
from torch.distributed.optim import PostLocalSGDOptimizer
from torch.nn.parallel import DistributedDataParallel as DDP
V = os.environ["V"]
dist.init_process_group("gloo"); r = dist.get_rank(); torch.manual_seed(0); net = MLP(); ddp = DDP(net)
if "h" in V or "g" in V: sub, _ = dist.new_subgroups(1)
if "h" in V: ddp.register_comm_hook(PostLocalSGDState(process_group=None, subgroup=sub, start_localSGD_iter=3), post_localSGD_hook)
opt = torch.optim.SGD(ddp.parameters(), 0.05, momentum=0.9)
if "o" in V: opt = PostLocalSGDOptimizer(optim=opt, averager=averagers.PeriodicModelAverager(period=4, warmup_steps=3))
for step in range(13):
    x, y = data(step, r); opt.zero_grad(); o = ddp(x); loss = F.mse_loss(o, y); loss.backward(); opt.step()
    if "d" in V: say("rank", r, step, loss.item(), digest(net.state_dict()))
dist.destroy_process_group()
