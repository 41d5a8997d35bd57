"""DTensor by hand: distribute_tensor of weights, redistribute with gradients, sequence parallel with PrepareModuleInput, loss_parallel; local shards and full tensors."""
# PRELUDE
import torch.distributed as dist
from torch.distributed.device_mesh import init_device_mesh
from torch.distributed.tensor import Replicate, Shard, distribute_tensor
from torch.distributed.tensor.parallel import ColwiseParallel, PrepareModuleInput, RowwiseParallel, SequenceParallel, loss_parallel, parallelize_module

dist.init_process_group("gloo")
r = dist.get_rank()
mesh = init_device_mesh("cpu", (2,))


class Net(nn.Module):
    def __init__(self):
        super().__init__()
        self.inn, self.norm, self.up, self.down, self.head = nn.Linear(8, 8), nn.LayerNorm(8), nn.Linear(8, 16), nn.Linear(16, 8), nn.Linear(8, 10)

    def forward(self, x):
        x = self.inn(x)
        return self.head(self.down(self.up(self.norm(x)).relu()))


torch.manual_seed(1)
m = parallelize_module(Net(), mesh, {"norm": SequenceParallel(), "inn": RowwiseParallel(input_layouts=Replicate(), output_layouts=Shard(1)),
                                     "up": ColwiseParallel(input_layouts=Shard(1)), "down": RowwiseParallel(output_layouts=Shard(1)),
                                     "head": ColwiseParallel(input_layouts=Shard(1), output_layouts=Shard(-1), use_local_output=False)})
W(m)
opt = torch.optim.AdamW(m.parameters(), 1e-2, foreach=True)
out = []
for s in range(4):
    g = torch.Generator().manual_seed(s)
    x, t = torch.randn(2, 4, 8, generator=g), torch.randint(0, 10, (8,), generator=g)
    opt.zero_grad()
    with loss_parallel():
        loss = F.cross_entropy(m(x).flatten(0, 1), t)
        loss.backward()
    opt.step()
    out.append(loss.full_tensor().item().hex() if hasattr(loss, "full_tensor") else loss.item().hex())
out.append(H([p.to_local() if hasattr(p, "to_local") else p for p in m.parameters()]))
w = distribute_tensor(torch.arange(16.0).view(4, 4), mesh, [Shard(0)]).requires_grad_()
y = (w.redistribute(mesh, [Replicate()]) @ w.t()).sum()
y.full_tensor().backward() if False else y.backward()
out.append(H(w.grad.full_tensor()))
with open(f"r{r}.txt", "w") as f:
    print(out, file=f)
dist.destroy_process_group()
