#: what: DDP static_graph with a shared layer checkpointed twice (reentrant), a parameter never used, two outputs of which one is lossless
#: source: https://github.com/pytorch/pytorch/issues/24005
#: run: TORCHRUN --nproc-per-node 2 PY case.py
# PRELUDE
import torch.distributed as dist
from torch.nn.parallel import DistributedDataParallel as DDP
dist.init_process_group("gloo"); rank = dist.get_rank(); LOG = open(f"rank{rank}.txt", "a")
import builtins
def print(*a, **k): builtins.print(*a, file=LOG, flush=True)
import warnings; warnings.filterwarnings("ignore")
from torch.utils.checkpoint import checkpoint
class N(nn.Module):
    def __init__(self): super().__init__(); self.i = nn.Linear(6, 12); self.s = nn.Sequential(nn.Linear(12, 12), nn.Dropout(0.3), nn.ReLU()); self.o = nn.Linear(12, 2); self.unused = nn.Linear(3, 3)
    def forward(self, x): h = self.i(x); h = checkpoint(self.s, h, use_reentrant=True); h = checkpoint(self.s, h, use_reentrant=True); return self.o(h)
seed(0); net = N(); m = DDP(net, static_graph=True); watch(m); opt = torch.optim.AdamW(m.parameters(), 1e-2); seed(5 + rank)
for s in range(10): x = torch.randn(4, 6); l = F.cross_entropy(m(x), (x[:, 0] > 0).long()); opt.zero_grad(); l.backward(); opt.step(); print(s, l.item())
show(net, opt); dist.destroy_process_group()
