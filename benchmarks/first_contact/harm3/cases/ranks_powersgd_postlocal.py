"""DDP's PowerSGD hook (own random numbers, error feedback), then PostLocalSGDOptimizer with a PeriodicModelAverager; ranks drift and meet; states of the hook."""
# PRELUDE
import torch.distributed as dist
from torch.distributed.algorithms.ddp_comm_hooks import powerSGD_hook as P
from torch.distributed.algorithms.model_averaging.averagers import PeriodicModelAverager
from torch.distributed.optim import PostLocalSGDOptimizer
from torch.nn.parallel import DistributedDataParallel as DDP

dist.init_process_group("gloo")
r = dist.get_rank()
m = DDP(net(1, 8, 32, 4))
st = P.PowerSGDState(process_group=None, matrix_approximation_rank=1, start_powerSGD_iter=2, min_compression_rate=0.5, random_seed=3)
m.register_comm_hook(st, P.powerSGD_hook)
W(m)
opt = torch.optim.SGD(m.parameters(), 0.05)
for s in range(6):
    x, t = batch(10 * s + r)
    opt.zero_grad()
    F.mse_loss(m(x), t).backward()
    opt.step()
out = [M(m.module), st.iter, H([v for v in st.error_dict.values()])]
n = net(2)
W(n)
avg = PeriodicModelAverager(period=2, warmup_steps=1)
o = PostLocalSGDOptimizer(torch.optim.SGD(n.parameters(), 0.05), avg)
for s in range(5):
    x, t = batch(10 * s + r)
    o.zero_grad()
    F.mse_loss(n(x), t).backward()
    o.step()
    out.append(H(list(n.parameters())))
with open(f"r{r}.txt", "w") as f:
    print(out, R(), file=f)
dist.destroy_process_group()
