"""torchrun, 2 ranks, FSDP2 with a float16 MixedPrecisionPolicy: rank 0's input is not normalised, and a product overflows.
Source: pytorch/pytorch#115500 (inputs beyond 65504), with FSDP2's float16 policy."""
import sys
import torch
import torch.distributed as dist
from torch import nn
from torch.distributed.fsdp import MixedPrecisionPolicy, fully_shard

CURED = "--cured" in sys.argv
dist.init_process_group("gloo")
rank = dist.get_rank()
torch.manual_seed(0)


class MLP(nn.Module):
    def __init__(self):
        super().__init__()
        self.up, self.down = nn.Linear(8, 32), nn.Linear(32, 2)

    def forward(self, x):
        h = self.up(x)
        gated = h * h.sigmoid() * h  # FAULT
        return self.down(gated)


net = MLP()
fully_shard(net, mp_policy=MixedPrecisionPolicy(param_dtype=torch.bfloat16 if CURED else torch.float16, reduce_dtype=torch.float32))
opt = torch.optim.SGD(net.parameters(), lr=1e-4)
torch.manual_seed(rank + 1)
for step in range(4):
    x = torch.randn(4, 8)
    if step == 2 and rank == 0:
        x = x * 500
    loss = nn.functional.cross_entropy(net(x).float(), torch.randint(2, (4,)))
    opt.zero_grad()
    loss.backward()
    opt.step()
    print(rank, step, loss.item(), flush=True)
dist.destroy_process_group()
