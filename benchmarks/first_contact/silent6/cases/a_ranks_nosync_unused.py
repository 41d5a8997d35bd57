"""From pytorch/pytorch issue 69031 (pull 124193).
Wrong: with accumulation under no_sync and find_unused_parameters=True DDP averages only what the last micro-batch used; parts of the model that
only earlier ones used keep each rank's own gradient.  Could know: yes, the replicas' weights part.
"""
import sys, contextlib, torch, torch.nn as nn, torch.nn.functional as F, torch.distributed as dist
from torch.nn.parallel import DistributedDataParallel as DDP
H = "--healthy" in sys.argv
dist.init_process_group("gloo"); R, W = dist.get_rank(), dist.get_world_size(); torch.set_num_threads(1); torch.manual_seed(0)
class M(nn.Module):
    def __init__(self): super().__init__(); self.a = nn.Linear(10, 32); self.b = nn.Linear(10, 32); self.o = nn.Linear(32, 1)
    def forward(self, x, which): return self.o(torch.tanh((self.a if which == 0 else self.b)(x)))
net = M(); ddp = DDP(net, find_unused_parameters=True); opt = torch.optim.SGD(ddp.parameters(), .05); w = torch.randn(10, 1); torch.manual_seed(3 + R)
for step in range(100):
    opt.zero_grad()
    for micro in range(2):
        x = torch.randn(16, 10)
        with (ddp.no_sync() if micro == 0 and not H else contextlib.nullcontext()): loss = F.mse_loss(ddp(x, micro), torch.sin(x @ w)) / 2; loss.backward()
    opt.step()
    if step % 20 == 0 and R == 0: print(step, round(loss.item(), 4), flush=True)
for n, p in net.named_parameters():
    o = [torch.zeros_like(p) for _ in range(W)]; dist.all_gather(o, p.detach())
    if R == 0 and n == "a.weight": print("check: ranks' a.weight differ by", (o[0] - o[1]).abs().max().item(), flush=True)
dist.barrier(); import gc, time; gc.collect(); dist.destroy_process_group(); time.sleep(0.5)
