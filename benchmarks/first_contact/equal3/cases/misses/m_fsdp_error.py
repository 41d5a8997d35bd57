"""FSDP2 on two ranks, nothing else. --save: asks for the state dict after step 2, as torch.distributed.checkpoint's recipe does."""
import sys

import torch
import torch.distributed as dist
from torch import nn
from torch.distributed.checkpoint.state_dict import get_state_dict
from torch.distributed.device_mesh import init_device_mesh
from torch.distributed.fsdp import fully_shard

dist.init_process_group("gloo")
torch.manual_seed(0)
model = nn.Sequential(nn.Linear(8, 32), nn.GELU(), nn.Linear(32, 8))
fully_shard(model, mesh=init_device_mesh("cpu", (dist.get_world_size(),)))
opt = torch.optim.AdamW(model.parameters(), lr=0.01)
torch.manual_seed(dist.get_rank())
for n in range(8):
    x = torch.randn(4, 8)
    (model(x) - x).square().mean().backward()
    opt.step()
    opt.zero_grad()
    if n == 2 and "--save" in sys.argv:
        get_state_dict(model, opt)
