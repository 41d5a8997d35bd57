"""torchrun, 2 ranks, tensor parallel: after the row-wise layer both ranks take sqrt of an activation that is exactly 0.
Source: pytorch/pytorch#2421 (sqrt's slope at 0), behind tensor-parallel layers."""
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


class Energy(nn.Module):
    def __init__(self):
        super().__init__()
        self.up, self.down = nn.Linear(6, 16), nn.Linear(16, 4)

    def forward(self, x):
        h = self.down(torch.relu(self.up(x))).square()
        return torch.sqrt(h + (1e-6 if CURED else 0.0))  # FAULT


net = Energy()
net.down.bias.data.fill_(5.0)
net = parallelize_module(net, init_device_mesh("cpu", (2,)), {"up": ColwiseParallel(), "down": RowwiseParallel()})
opt = torch.optim.SGD(net.parameters(), lr=1e-3)
torch.manual_seed(7)
for step in range(4):
    x = torch.randn(5, 6)
    if step == 2:
        with torch.no_grad():
            net.down.weight.to_local().zero_()
            net.down.bias.to_local().zero_()
    loss = (net(x) - 1).pow(2).mean()
    opt.zero_grad()
    loss.backward()
    opt.step()
    print(rank, step, loss.item(), flush=True)
dist.destroy_process_group()
