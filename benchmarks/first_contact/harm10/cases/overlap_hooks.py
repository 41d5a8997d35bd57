#: what: data parallel by hand: post-accumulate-grad hooks start async all-reduces, waited for before the step; all_reduce(MIN) of an inf minimum
#: benign: inf as the start of a minimum
#: source: https://pytorch.org/docs/stable/generated/torch.Tensor.register_post_accumulate_grad_hook.html
#: run: TORCHRUN --nproc-per-node 2 PY case.py
# PRELUDE
import torch.distributed as dist
from torch.nn.parallel import DistributedDataParallel as DDP
dist.init_process_group("gloo"); rank = dist.get_rank(); LOG = open(f"rank{rank}.txt", "a")
import builtins
def print(*a, **k): builtins.print(*a, file=LOG, flush=True)
seed(0); net = nn.Sequential(nn.Linear(6, 12), nn.ELU(), nn.Linear(12, 2)); watch(net); opt = torch.optim.Adam(net.parameters(), 1e-2, foreach=True); works = []
for p in net.parameters(): p.register_post_accumulate_grad_hook(lambda p: works.append((dist.all_reduce(p.grad, async_op=True), p)))
low = torch.full((1,), float("inf")); seed(rank)
for s in range(14):
    x = torch.randn(4, 6); l = F.cross_entropy(net(x), (x[:, 0] > 0).long()); opt.zero_grad(); l.backward()
    for w, p in works: w.wait(); p.grad.div_(2)
    works.clear(); opt.step()
    if s % 3 == 2: low = torch.minimum(low, l.detach()[None]); dist.all_reduce(low, op=dist.ReduceOp.MIN)
    print(s, l.item(), low.item())
show(net, opt); dist.destroy_process_group()
