"""DDP with accumulation over 2 micro-batches on 2 ranks: no_sync covers the micro-batch that steps (batch_idx % accum), so ranks step with their own gradients in part.
Source: https://github.com/modelscope/FunASR/pull/3472 (similar: speechbrain pull 2010)
Truth: largest difference of weights between the ranks.
Could a tool know: yes. Gradients at the step differ between ranks; weights part.
ranks: 2
"""
import sys, contextlib, torch, torch.nn.functional as F, torch.distributed as dist
from torch import nn
from torch.nn.parallel import DistributedDataParallel as DDP
HEALTHY = "--healthy" in sys.argv
torch.set_num_threads(1); dist.init_process_group("gloo"); rank = dist.get_rank(); torch.manual_seed(0)
class ASR(nn.Module):
    def __init__(self): super().__init__(); self.c = nn.Conv1d(8, 24, 3, padding=1); self.r = nn.GRU(24, 24, batch_first=True); self.o = nn.Linear(24, 6)
    def forward(self, x): return self.o(self.r(self.c(x).relu().transpose(1, 2))[0]).log_softmax(-1)
net = ASR(); ddp = DDP(net); opt = torch.optim.Adam(net.parameters(), 3e-3); g = torch.Generator().manual_seed(rank + 10); P = torch.randn(5, 8); ACC = 2
for batch_idx in range(200):
    y = torch.randint(1, 6, (8, 3), generator=g); x = P[y - 1].repeat_interleave(4, 1).transpose(1, 2) + 0.3 * torch.randn(8, 8, 12, generator=g)
    sync = (batch_idx + 1) % ACC == 0 if HEALTHY else batch_idx % ACC == 0
    with contextlib.nullcontext() if sync else ddp.no_sync():
        loss = F.ctc_loss(ddp(x).transpose(0, 1), y, torch.full((8,), 12), torch.full((8,), 3)) / ACC; loss.backward()
    if (batch_idx + 1) % ACC == 0: opt.step(); opt.zero_grad()
w = torch.cat([p.detach().flatten() for p in net.parameters()]); o = w.clone(); dist.broadcast(o, 0); d = (w - o).abs().max(); dist.all_reduce(d, dist.ReduceOp.MAX)
if rank == 0: print(f"TRUTH weights differ between ranks by {d:.4f} loss {loss * ACC:.3f}")
dist.destroy_process_group()
