"""torchrun, 2 ranks, tensor parallel: an exponential gate on the columns that rank 1 holds.
Source: Own: an exponential gate in a column-parallel layer."""
import sys
import torch
import torch.distributed as dist
from torch import nn
from torch.distributed.device_mesh import init_device_mesh
from torch.distributed.tensor.parallel import ColwiseParallel, RowwiseParallel, parallelize_module

CURED = "--cured" in sys.argv
dist.init_process_group("gloo")
rank = dist.get_rank()
torch.manual_seed(0)


class ExpMLP(nn.Module):
    def __init__(self):
        super().__init__()
        self.up, self.down = nn.Linear(6, 16), nn.Linear(16, 3)

    def forward(self, x):
        h = self.up(x)
        if CURED:
            h = h.clamp(max=20)
        return self.down(torch.exp(h))  # FAULT


net = ExpMLP()
net.up.bias.data[8:] = 3.0
net = parallelize_module(net, init_device_mesh("cpu", (2,)), {"up": ColwiseParallel(), "down": RowwiseParallel()})
opt = torch.optim.SGD(net.parameters(), lr=1e-6)
torch.manual_seed(7)  # ranks see the same batch
for step in range(4):
    x = torch.randn(5, 6)
    if step == 2:
        with torch.no_grad():
            bias = net.up.bias.to_local()
            if rank == 1:
                bias.add_(90.0)
    loss = nn.functional.cross_entropy(net(x), torch.randint(3, (5,)))
    opt.zero_grad()
    loss.backward()
    opt.step()
    print(rank, step, loss.item(), flush=True)
dist.destroy_process_group()
