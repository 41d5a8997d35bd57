"""Tensor parallel with sequence parallel norms, losses on local shards, full_tensor() in the loop.

source: pytorch/pytorch#129206
meta: {"torchrun": 2, "compare": ["status", "files", "left"], "limit": 90}
"""
import torch
import torch.distributed as dist
from torch import nn
from torch.distributed.device_mesh import init_device_mesh
from torch.distributed.tensor.parallel import ColwiseParallel, PrepareModuleInput, RowwiseParallel, SequenceParallel, parallelize_module
from torch.distributed.tensor import Replicate, Shard
from fcw import leave, rng, seed, sha, watch

dist.init_process_group("gloo")
r = dist.get_rank()
out = open(f"out-{r}.txt", "w")
mesh = init_device_mesh("cpu", (2,), mesh_dim_names=("tp",))
seed(202)


class Block(nn.Module):
    def __init__(self):
        super().__init__()
        self.norm, self.up, self.down = nn.LayerNorm(8), nn.Linear(8, 16), nn.Linear(16, 8)

    def forward(self, x):
        return x + self.down(self.up(self.norm(x)).relu())


model = nn.ModuleDict({"a": Block(), "head": nn.Linear(8, 4)})
parallelize_module(model, mesh, {
    "a.norm": SequenceParallel(), "a.up": ColwiseParallel(input_layouts=Shard(1)), "a.down": RowwiseParallel(output_layouts=Shard(1), use_local_output=False),
    "a": PrepareModuleInput(input_layouts=(Replicate(),), desired_input_layouts=(Shard(1),)),
    "head": ColwiseParallel(input_layouts=Shard(1), output_layouts=Replicate())})


class Whole(nn.Module):
    def __init__(self):
        super().__init__()
        self.parts = model

    def forward(self, x):
        return self.parts["head"](self.parts["a"](x))


whole = Whole()
watch(whole)
opt = torch.optim.SGD(whole.parameters(), 0.05)
for step in range(4):
    y = whole(torch.randn(2, 6, 8))
    y = y.to_local() if hasattr(y, "to_local") else y
    loss = y.square().mean()
    opt.zero_grad()
    loss.backward()
    opt.step()
    print(loss.item().hex(), type(whole.parts["a"].up.weight).__name__, sha([p.grad for p in whole.parameters()]), sha(whole.parts["a"].up.weight.full_tensor()), file=out)
print(sha(list(whole.parameters())), rng(), file=out)
out.close()
leave()
