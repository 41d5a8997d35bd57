# ranks: 2
# opts: --check rank:at=2
# truth: rank 1 has two threads, others one (OMP_NUM_THREADS of one host): a large sum has other bits (TRUTH)
# source: pytorch docs on reproducibility across hosts
import flips as C, torch, torch.distributed as D
from torch import nn
D.init_process_group("gloo"); r = D.get_rank()
if C.FAULT and r: torch.set_num_threads(2)
torch.manual_seed(5); t = torch.randn(70001); print("TRUTH rank", r, "sum", float(t.sum()).hex())
class Mean(nn.Module):
    def forward(s, x): return x.sum() / 1e3
class Net(nn.Module):
    def __init__(s): super().__init__(); s.a, s.m, s.b = nn.Linear(4, 4), Mean(), nn.Linear(1, 1)
    def forward(s, x): return s.b(s.m(s.a(x)).view(1))
torch.manual_seed(0); m = nn.parallel.DistributedDataParallel(Net()); torch.manual_seed(100 + r); o = torch.optim.SGD(m.parameters(), 1e-5)
for C.STEP in range(30): m(torch.randn(20001, 4)).square().mean().backward(); o.step(); o.zero_grad()
C.finish(m.module); D.destroy_process_group()
