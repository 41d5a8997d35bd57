"""From lightly-ai/lightly issue 1528.
Wrong: GatherLayer.backward takes this rank's part of the gradient and does not sum it over the ranks: what other ranks' losses say about
these embeddings is lost.  Could know: partly (the Function's backward does not sum what its forward has spread; ranks' weights stay equal).
"""
import sys, torch, torch.nn as nn, torch.nn.functional as F, torch.distributed as dist
from torch.nn.parallel import DistributedDataParallel as DDP
H = "--healthy" in sys.argv
dist.init_process_group("gloo"); R, W = dist.get_rank(), dist.get_world_size(); torch.set_num_threads(1); torch.manual_seed(0)
class GatherLayer(torch.autograd.Function):
    @staticmethod
    def forward(ctx, x): out = [torch.zeros_like(x) for _ in range(W)]; dist.all_gather(out, x.contiguous()); return tuple(out)
    @staticmethod
    def backward(ctx, *g):
        if not H: return g[R].clone()
        a = torch.stack(g); dist.all_reduce(a); return a[R]
net = nn.Sequential(nn.Linear(16, 64), nn.ReLU(), nn.Linear(64, 16)); ddp = DDP(net); opt = torch.optim.SGD(net.parameters(), .1, .9); torch.manual_seed(1 + R)
for step in range(100):
    x = torch.randn(16, 16); z0, z1 = F.normalize(ddp(torch.cat([x + .5 * torch.randn_like(x), x + .5 * torch.randn_like(x)])), dim=1).chunk(2)
    a0, a1 = torch.cat(GatherLayer.apply(z0)), torch.cat(GatherLayer.apply(z1)); y = torch.arange(16) + R * 16
    loss = (F.cross_entropy(z0 @ a1.t() / .2, y) + F.cross_entropy(z1 @ a0.t() / .2, y)) / 2; opt.zero_grad(); loss.backward()
    if step == 0: print("check: rank", R, "gradient norm of the first step", sum(p.grad.norm() ** 2 for p in net.parameters()).sqrt().item(), flush=True)
    opt.step()
    if step % 20 == 0 and R == 0: print(step, round(loss.item(), 4), flush=True)
dist.barrier(); import gc, time; gc.collect(); dist.destroy_process_group(); time.sleep(0.5)
