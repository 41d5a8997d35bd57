"""Four ranks with the HierarchicalModelAverager (groups of 2 every 2 steps, of 4 every 4), then a PeriodicModelAverager with a warm-up and PostLocalSGDOptimizer's state dict with its step; how weights differ and meet."""
# PRELUDE
import collections, warnings
import torch.distributed as dist
from torch.distributed.algorithms.model_averaging.averagers import PeriodicModelAverager
from torch.distributed.algorithms.model_averaging.hierarchical_model_averager import HierarchicalModelAverager
from torch.distributed.optim import PostLocalSGDOptimizer

warnings.simplefilter("ignore")
dist.init_process_group("gloo")
r = dist.get_rank()
say = lambda *a: open(f"rank{r}.txt", "a").write(" ".join(map(str, a)) + "\n")


def all_hashes(m):
    out = [None] * dist.get_world_size()
    dist.all_gather_object(out, H([p.detach() for p in m.parameters()]))
    return out


m = net(1)
W(m)
opt = torch.optim.SGD(m.parameters(), 0.05)
av = HierarchicalModelAverager(period_group_size_dict=collections.OrderedDict([(2, 2), (4, 4)]), warmup_steps=1)
for s in range(9):
    x, y = batch(10 * s + r)
    opt.zero_grad()
    loss = F.mse_loss(m(x), y)
    loss.backward()
    opt.step()
    av.average_parameters(m.parameters())
    say(s, loss.item().hex(), len(set(all_hashes(m))), M(m))
m = net(2)
W(m)
opt = PostLocalSGDOptimizer(torch.optim.SGD(m.parameters(), 0.05, momentum=0.9), PeriodicModelAverager(period=3, warmup_steps=2))
for s in range(8):
    opt.zero_grad()
    F.mse_loss(m(batch(10 * s + r)[0]), batch(s)[1]).backward()
    opt.step()
    say(s, opt.averager.step, len(set(all_hashes(m))), M(m))
sd = opt.state_dict()
opt.load_state_dict(sd)
say(sorted(sd), sd["step"], H(sd["state"]), R())
dist.barrier()
dist.destroy_process_group()
