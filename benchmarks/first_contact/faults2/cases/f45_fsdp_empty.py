"""open-mmlab/mmdetection#3394-like empty targets: mean of the positives of a rank that has none (FSDP2, gloo) RANKS2
TRUTH op=aten.mean reason=division by zero rank=1"""
import sys
import torch
from torch import nn
import torch.nn.functional as F
from _util import done
CURED = "--cured" in sys.argv
torch.manual_seed(0); torch.set_num_threads(1)

import torch.distributed as dist
from torch.distributed.fsdp import fully_shard
dist.init_process_group("gloo"); r = dist.get_rank()
class Net(nn.Module):
    def __init__(self):
        super().__init__(); self.b = nn.Sequential(nn.Linear(8, 32), nn.GELU(), nn.Linear(32, 32)); self.cls, self.reg = nn.Linear(32, 1), nn.Linear(32, 4)
    def forward(self, x): h = self.b(x); return self.cls(h).squeeze(-1), self.reg(h)
net = Net(); fully_shard(net.b); fully_shard(net); opt = torch.optim.AdamW(net.parameters(), 1e-3); torch.manual_seed(10 + r)
for step in range(4):
    x, t = torch.randn(12, 8), torch.randn(12, 4); pos = torch.arange(12) < 4
    if step == 2 and r == 1: pos[:] = False
    c, b = net(x); err = (b - t).abs().sum(1)
    reg = (err * pos).sum() / max(pos.sum(), 1) if CURED else err[pos].mean()  # FAULT
    loss = F.binary_cross_entropy_with_logits(c, pos.float()) + reg; opt.zero_grad(); loss.backward(); opt.step(); print(r, step, loss.item())
done(loss.detach(), net); dist.destroy_process_group()
