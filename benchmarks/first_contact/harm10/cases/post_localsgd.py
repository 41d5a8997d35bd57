#: what: post-local SGD: DDP comm hook for the first 4 steps, then PeriodicModelAverager inside PostLocalSGDOptimizer
#: source: https://pytorch.org/docs/stable/_modules/torch/distributed/optim/post_localSGD_optimizer.html
#: run: TORCHRUN --nproc-per-node 2 PY case.py
# PRELUDE
import torch.distributed as dist
from torch.nn.parallel import DistributedDataParallel as DDP
dist.init_process_group("gloo"); rank = dist.get_rank(); LOG = open(f"rank{rank}.txt", "a")
import builtins
def print(*a, **k): builtins.print(*a, file=LOG, flush=True)
import torch.distributed.algorithms.model_averaging.averagers as av
from torch.distributed.algorithms.ddp_comm_hooks.post_localSGD_hook import PostLocalSGDState, post_localSGD_hook
from torch.distributed.optim import PostLocalSGDOptimizer
seed(0); net = nn.Sequential(nn.Linear(6, 16), nn.Tanh(), nn.Linear(16, 1)); m = DDP(net); watch(m); subgroup, _ = dist.new_subgroups(1)
m.register_comm_hook(PostLocalSGDState(process_group=None, subgroup=subgroup, start_localSGD_iter=4), post_localSGD_hook)
opt = PostLocalSGDOptimizer(torch.optim.SGD(m.parameters(), 0.05, momentum=0.9), av.PeriodicModelAverager(period=3, warmup_steps=4))
seed(rank)
for s in range(16): x = torch.randn(4, 6); l = F.mse_loss(m(x), x.sum(1, keepdim=True)); opt.zero_grad(); l.backward(); opt.step(); print(s, l.item(), sha(list(net.parameters())))
show(net, opt.optim); dist.destroy_process_group()
