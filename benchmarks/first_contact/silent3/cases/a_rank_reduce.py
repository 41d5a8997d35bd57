"""Hand-written data parallelism uses dist.reduce(grad, dst=0): only rank 0 gets the sum, the others go on with partial gradients.
Source: https://github.com/pytorch/tutorials/pull/1926 (dist.reduce where dist.all_reduce was meant)
Truth: weights differ between the ranks.
Could a tool know: yes: ranks that began with equal weights part.
"""
import sys
import torch
import torch.distributed as dist
from torch import nn

HEALTHY = "--healthy" in sys.argv
torch.set_num_threads(1)
dist.init_process_group("gloo")
rank, world = dist.get_rank(), dist.get_world_size()
torch.manual_seed(0)
model = nn.Sequential(nn.Conv1d(2, 12, 3), nn.ReLU(), nn.AdaptiveAvgPool1d(1), nn.Flatten(), nn.Linear(12, 3))
opt = torch.optim.SGD(model.parameters(), lr=0.05, momentum=0.9)
protos = torch.randn(3, 2, 16)
torch.manual_seed(10 + rank)


def average_gradients():
    for p in model.parameters():
        if HEALTHY:
            dist.all_reduce(p.grad)
        else:
            dist.reduce(p.grad, dst=0)
        p.grad /= world


for step in range(120):
    y = torch.randint(0, 3, (16,))
    loss = nn.functional.cross_entropy(model(protos[y] + 0.5 * torch.randn(16, 2, 16)), y)
    opt.zero_grad()
    loss.backward()
    average_gradients()
    opt.step()
p = model[0].weight.detach().clone()
q = p.clone()
dist.all_reduce(q, op=dist.ReduceOp.MAX)
print(f"rank {rank} loss {loss.item():.4f} differs from the other rank by {(q - p).abs().max():.2e}")
dist.destroy_process_group()
