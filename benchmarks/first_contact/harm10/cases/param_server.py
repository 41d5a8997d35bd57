#: what: a parameter server by send and recv: rank 0 keeps weights and optimizer and never calls the model, rank 1 computes gradients and sends them
#: source: https://github.com/bytedance/byteps/issues/180
#: run: TORCHRUN --nproc-per-node 2 PY case.py
# PRELUDE
import torch.distributed as dist
from torch.nn.parallel import DistributedDataParallel as DDP
dist.init_process_group("gloo"); rank = dist.get_rank(); LOG = open(f"rank{rank}.txt", "a")
import builtins
def print(*a, **k): builtins.print(*a, file=LOG, flush=True)
seed(0); net = nn.Sequential(nn.Linear(6, 12), nn.GELU(), nn.Linear(12, 2)); watch(net); from torch.nn.utils import parameters_to_vector as p2v, vector_to_parameters as v2p
n = p2v(net.parameters()).numel(); opt = torch.optim.RMSprop(net.parameters(), 1e-2)
for s in range(15):
    if rank == 0:
        dist.send(p2v(net.parameters()).detach(), 1); g = torch.empty(n); dist.recv(g, 1); o = 0
        for p in net.parameters(): p.grad = g[o:o + p.numel()].view_as(p).clone(); o += p.numel()
        opt.step(); print(s, sha(g))
    else:
        w = torch.empty(n); dist.recv(w, 0); v2p(w, net.parameters()); x = torch.randn(8, 6); l = F.cross_entropy(net(x), (x[:, 0] > 0).long()); net.zero_grad(); l.backward(); r = dist.isend(torch.cat([p.grad.flatten() for p in net.parameters()]), 0); r.wait(); print(s, l.item())
show(net, opt); dist.destroy_process_group()
