"""torchtitan's plan: SequenceParallel norms, PrepareModuleInput and Output, colwise embedding, loss on gathered output, weights read back with full_tensor and clip by total norm over DTensors."""
# PRELUDE
import torch.distributed as dist
from torch.distributed.device_mesh import init_device_mesh
from torch.distributed.tensor import Shard, Replicate
from torch.distributed.tensor.parallel import parallelize_module, ColwiseParallel, RowwiseParallel, SequenceParallel, PrepareModuleInput
mesh = init_device_mesh("cpu", (2,), mesh_dim_names=("tp",))
class FF(nn.Module):
    def __init__(self):
        super().__init__()
        self.w1, self.w2, self.w3 = nn.Linear(8, 16, bias=False), nn.Linear(16, 8, bias=False), nn.Linear(8, 16, bias=False)
    def forward(self, x):
        return self.w2(F.silu(self.w1(x)) * self.w3(x))
class B(nn.Module):
    def __init__(self):
        super().__init__()
        self.norm, self.ff = nn.LayerNorm(8), FF()
    def forward(self, x):
        return x + self.ff(self.norm(x))
class T(nn.Module):
    def __init__(self):
        super().__init__()
        self.emb, self.norm, self.out = nn.Embedding(12, 8), nn.LayerNorm(8), nn.Linear(8, 12, bias=False)
        self.layers = nn.ModuleDict({str(i): B() for i in range(2)})
    def forward(self, t):
        x = self.emb(t)
        for l in self.layers.values():
            x = l(x)
        return self.out(self.norm(x))
torch.manual_seed(1)
m = T()
parallelize_module(m, mesh, {"emb": RowwiseParallel(input_layouts=Replicate(), output_layouts=Shard(1)), "norm": SequenceParallel(), "out": ColwiseParallel(input_layouts=Shard(1), output_layouts=Replicate())})
for b in m.layers.values():
    parallelize_module(b, mesh, {"norm": SequenceParallel(), "ff": PrepareModuleInput(input_layouts=(Shard(1),), desired_input_layouts=(Replicate(),)), "ff.w1": ColwiseParallel(), "ff.w2": RowwiseParallel(output_layouts=Shard(1)), "ff.w3": ColwiseParallel()})
W(m)
opt = torch.optim.AdamW(m.parameters(), 1e-2, foreach=False)
for s in range(4):
    t = torch.randint(0, 12, (2, 6), generator=torch.Generator().manual_seed(s))
    loss = F.cross_entropy(m(t).flatten(0, 1), t.roll(1, 1).flatten())
    opt.zero_grad()
    loss.backward()
    tn = nn.utils.get_total_norm([p.grad for p in m.parameters()], foreach=False)
    nn.utils.clip_grads_with_norm_(m.parameters(), 1.0, tn.full_tensor(), foreach=False)
    opt.step()
    v = float(loss.detach()).hex()
    if dist.get_rank() == 0:
        print(s, v)
full = {k: v.full_tensor() if hasattr(v, "full_tensor") else v for k, v in m.state_dict().items()}
if dist.get_rank() == 0:
    print(H(full), R())
dist.destroy_process_group()
