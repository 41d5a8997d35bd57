# ranks: 3
# opts: --check rank:at=2
# truth: rank 2 has torch.backends.mkldnn.flags(enabled=False): conv takes another path (other bits, see TRUTH): conv named, rank 2
# source: pytorch docs backends.mkldnn; mixed library paths in a job
import flips as C, torch, torch.distributed as D
from torch import nn
import torch.nn.functional as F
D.init_process_group("gloo"); r = D.get_rank(); n = D.get_world_size(); BAD = C.FAULT and r == n - 1
class Net(nn.Module):
    def __init__(s): super().__init__(); s.c1, s.c2, s.f = nn.Conv2d(3, 16, 3, padding=1), nn.Conv2d(16, 16, 3, padding=1), nn.Linear(16, 4)
    def forward(s, x): return s.f(F.relu(s.c2(F.relu(s.c1(x)))).mean((2, 3)))
if BAD: torch.backends.mkldnn.set_flags(False)
torch.manual_seed(5); t = torch.randn(4, 16, 16, 16); w = torch.randn(16, 16, 3, 3); print("TRUTH rank", r, "conv bits", C.hashlib.md5(F.conv2d(t, w).numpy().tobytes()).hexdigest()[:8])
torch.manual_seed(0); m = Net(); m = nn.parallel.DistributedDataParallel(m); torch.manual_seed(100 + r); o = torch.optim.AdamW(m.parameters(), 1e-3)
for C.STEP in range(30):
    l = m(torch.randn(4, 3, 16, 16)).square().mean()
    l.backward(); o.step(); o.zero_grad()
C.finish(m.module); D.destroy_process_group()
