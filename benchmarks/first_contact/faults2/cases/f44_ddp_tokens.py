"""PrimeIntellect-ai/prime-rl#808: loss divided by the number of tokens, which is 0 on rank 1 (DDP, gloo) RANKS2
TRUTH op=aten.div reason=division by zero rank=1"""
import sys
import torch
from torch import nn
import torch.nn.functional as F
from _util import done
CURED = "--cured" in sys.argv
torch.manual_seed(0); torch.set_num_threads(1)

import torch.distributed as dist
dist.init_process_group("gloo"); r = dist.get_rank()
from torch.nn.parallel import DistributedDataParallel as DDP
class LM(nn.Module):
    def __init__(self):
        super().__init__(); self.e, self.g, self.o = nn.Embedding(30, 16), nn.GRU(16, 16, batch_first=True), nn.Linear(16, 30)
    def forward(self, i): return self.o(self.g(self.e(i))[0])
net = LM(); ddp = DDP(net); opt = torch.optim.AdamW(ddp.parameters(), 1e-3); torch.manual_seed(10 + r)
for step in range(4):
    ids = torch.randint(0, 30, (2, 8)); m = torch.ones(2, 8)
    if step == 2 and r == 1: m[:] = 0
    ce = F.cross_entropy(ddp(ids).transpose(1, 2), ids, reduction="none")
    n = m.sum().clamp(min=1) if CURED else m.sum()
    loss = (ce * m).sum() / n  # FAULT
    opt.zero_grad(); loss.backward(); opt.step(); print(r, step, loss.item())
done(loss.detach(), net); dist.destroy_process_group()
