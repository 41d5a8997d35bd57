"""DDP with a communication hook of the script's, find_unused_parameters, static_graph with checkpointing, ZeroRedundancyOptimizer.

Source: https://github.com/pytorch/pytorch/pull/110903
"""
# PRELUDE
import torch.distributed as dist
from torch.nn.parallel import DistributedDataParallel as DDP
from torch.distributed.optim import ZeroRedundancyOptimizer
from torch.utils.checkpoint import checkpoint
dist.init_process_group("gloo"); r = dist.get_rank(); f = open(f"r{r}.txt", "w")
class Net(nn.Module):
    def __init__(self): super().__init__(); self.a, self.b, self.c = nn.Linear(8, 8), nn.Linear(8, 4), nn.Linear(8, 4); self.pick = 0; self.ck = False
    def forward(self, x): h = checkpoint(self.a, x, use_reentrant=False) if self.ck else self.a(x); return (self.b if self.pick == 0 else self.c)(torch.relu(h))
n = []
def hook(state, bucket): n.append(bucket.buffer().numel()); return dist.all_reduce(bucket.buffer() / 2, async_op=True).get_future().then(lambda fu: fu.value()[0] if isinstance(fu.value(), (list, tuple)) else fu.value())
torch.manual_seed(0); m = Net(); W(m); d = DDP(m, find_unused_parameters=True); d.register_comm_hook(None, hook); opt = ZeroRedundancyOptimizer(d.parameters(), torch.optim.Adam, lr=1e-2)
for s in range(4): m.pick = s % 2; print(train(d, opt, 1, 10 * r + s), file=f)
k = Net(); k.ck = True; W(k); e = DDP(k, static_graph=True, find_unused_parameters=True); print(train(e, torch.optim.SGD(e.parameters(), 0.1), 3, 10 * r), M(m), M(k), n, file=f); f.close(); dist.destroy_process_group()
