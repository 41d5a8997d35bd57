"""Two ranks under FSDP2 in float16: an RMS norm's square overflows in a module.
Source: huggingface/transformers#5651 (its kind), pytorch/torchtitan
"""
import torch
import torch.distributed as dist
from torch import nn
from torch.distributed.device_mesh import init_device_mesh
from torch.distributed.fsdp import fully_shard

import kit

dist.init_process_group("gloo")
rank = dist.get_rank()
torch.manual_seed(0)


class RMS(nn.Module):
    def __init__(self, n):
        super().__init__()
        self.w = nn.Parameter(torch.ones(n))

    def forward(self, x):
        e = x.pow(2)
        return self.w * e / (e.mean(-1, keepdim=True) + 1e-3)


model = nn.Sequential(nn.Linear(6, 16), RMS(16), nn.Linear(16, 4)).half()
mesh = init_device_mesh("cpu", (2,))
fully_shard(model[0], mesh=mesh)
fully_shard(model[2], mesh=mesh)
fully_shard(model, mesh=mesh)
opt = torch.optim.SGD(model.parameters(), 1e-2)
torch.manual_seed(rank + 1)
for k in range(8):
    kit.now = k
    opt.zero_grad()
    x = torch.randn(8, 6) * (1000.0 if k >= 3 else 1.0)
    loss = model(x.half()).float().square().mean()
    loss.backward()
    opt.step()
    print("rank", rank, k, kit.bits(loss), kit.digest(model, opt), flush=True)
dist.destroy_process_group()
