"""Each rank decides by its own loss whether to step (skip outliers): one rank skips, the other does not, and replicas part.
Source: https://github.com/NVIDIA-NeMo/Automodel/pull/2468
Truth: weights and numbers of steps differ between the ranks.
Could a tool know: yes: replicas under DDP differ, and one rank left out an optimizer's step.
"""
import sys
import torch
import torch.distributed as dist
from torch import nn
from torch.nn.parallel import DistributedDataParallel as DDP

HEALTHY = "--healthy" in sys.argv
torch.set_num_threads(1)
dist.init_process_group("gloo")
rank = dist.get_rank()
torch.manual_seed(0)
model = DDP(nn.Sequential(nn.Linear(12, 48), nn.GELU(), nn.Linear(48, 1)))
opt = torch.optim.AdamW(model.parameters(), lr=2e-3)
w = torch.randn(12, 1)
torch.manual_seed(50 + rank)
steps, mean = 0, None
for i in range(160):
    x = torch.randn(16, 12)
    y = x @ w + (8 * torch.randn(16, 1) if torch.rand(()) < 0.06 else 0)
    loss = nn.functional.mse_loss(model(x), y)
    opt.zero_grad()
    loss.backward()
    judged = loss.detach().clone()
    if HEALTHY:
        dist.all_reduce(judged)
        judged /= 2
    mean = judged if mean is None else 0.9 * mean + 0.1 * judged.clamp_max(2 * mean.item())
    if i > 10 and judged > 3 * mean:
        continue
    opt.step()
    steps += 1
p = model.module[0].weight.detach().clone()
q = p.clone()
dist.all_reduce(q, op=dist.ReduceOp.MAX)
print(f"rank {rank} loss {loss.item():.4f} steps {steps} differs from the other rank by {(q - p).abs().max():.2e}")
dist.destroy_process_group()
