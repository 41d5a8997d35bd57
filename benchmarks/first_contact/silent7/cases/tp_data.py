"""Tensor-parallel model with a DataLoader that is split over all processes."""
import argparse, torch, torch.distributed as dist, torch.nn as nn, torch.nn.functional as F
from torch.distributed.device_mesh import init_device_mesh
from torch.distributed.tensor.parallel import ColwiseParallel, RowwiseParallel, parallelize_module
from torch.utils.data import DataLoader, DistributedSampler, TensorDataset
ap = argparse.ArgumentParser(); ap.add_argument("--healthy", action="store_true"); args = ap.parse_args()
dist.init_process_group("gloo"); rank, world = dist.get_rank(), dist.get_world_size()
mesh = init_device_mesh("cpu", (1, 2), mesh_dim_names=("dp", "tp"))

class MLP(nn.Module):
    def __init__(self, d=32):
        super().__init__()
        self.norm, self.up, self.down = nn.LayerNorm(d), nn.Linear(d, 4 * d), nn.Linear(4 * d, d)
    def forward(self, x):
        return x + self.down(F.gelu(self.up(self.norm(x))))

class Net(nn.Module):
    def __init__(self):
        super().__init__()
        self.inp, self.a, self.b, self.out = nn.Linear(16, 32), MLP(), MLP(), nn.Linear(32, 4)
    def forward(self, x):
        return self.out(self.b(self.a(self.inp(x))))

torch.manual_seed(0)
model = Net()
for name in ("a", "b"):
    parallelize_module(getattr(model, name), mesh["tp"], {"up": ColwiseParallel(), "down": RowwiseParallel()})
x = torch.randn(768, 16); y = torch.tanh(x @ torch.randn(16, 4)).argmax(-1)
data = TensorDataset(x, y)
if args.healthy:
    sampler = DistributedSampler(data, num_replicas=mesh["dp"].size(), rank=mesh.get_local_rank("dp"), seed=1)
else:
    sampler = DistributedSampler(data, seed=1)
loader = DataLoader(data, batch_size=16, sampler=sampler, drop_last=True)
opt = torch.optim.AdamW(model.parameters(), lr=2e-3, foreach=False)
for epoch in range(3):
    sampler.set_epoch(epoch)
    for bx, by in loader:
        loss = F.cross_entropy(model(bx), by)
        opt.zero_grad()
        loss.backward()
        opt.step()
    if rank == 0:
        print(f"epoch {epoch} loss {loss.item():.4f}")
w, outs, bs = model.inp.weight.detach(), [torch.empty_like(model.inp.weight) for _ in range(world)], [torch.empty_like(bx) for _ in range(world)]
dist.all_gather(bs, bx); dist.all_gather(outs, w)
if rank == 0:
    print(f"tensor-parallel ranks had the same batch {torch.equal(*bs)}, their replicated weights are equal {torch.equal(*outs)}")
dist.barrier()
dist.destroy_process_group()
