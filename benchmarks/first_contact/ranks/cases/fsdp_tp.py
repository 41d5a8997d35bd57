# 2D: FSDP2 over tensor and sequence parallel, four ranks; norms are sequence parallel
from fcutil import *
from torch.distributed.device_mesh import init_device_mesh
from torch.distributed.fsdp import fully_shard
from torch.distributed.tensor import Replicate, Shard
from torch.distributed.tensor.parallel import ColwiseParallel, RowwiseParallel, SequenceParallel, PrepareModuleInput, parallelize_module
mesh = init_device_mesh("cpu", (2, 2), mesh_dim_names=("dp", "tp")); r = dist.get_rank(); dp = mesh["dp"].get_local_rank()
class Block(nn.Module):
    def __init__(self):
        super().__init__(); self.norm = nn.LayerNorm(16); self.w1 = nn.Linear(16, 32, bias=False); self.w2 = nn.Linear(32, 16, bias=False)
    def forward(self, x):
        return x + self.w2(F.silu(self.w1(self.norm(x))))
class Net(nn.Module):
    def __init__(self):
        super().__init__(); self.tok = nn.Embedding(40, 16); self.layers = nn.ModuleList(Block() for _ in range(2)); self.norm = nn.LayerNorm(16); self.out = nn.Linear(16, 40, bias=False)
    def forward(self, t):
        h = self.tok(t)
        for l in self.layers: h = l(h)
        return self.out(self.norm(h))
torch.manual_seed(0); net = Net()
parallelize_module(net, mesh["tp"], {"tok": RowwiseParallel(input_layouts=Replicate(), output_layouts=Shard(1)), "norm": SequenceParallel(), "out": ColwiseParallel(input_layouts=Shard(1), output_layouts=Replicate())})
for l in net.layers:
    parallelize_module(l, mesh["tp"], {"norm": SequenceParallel(), "w1": ColwiseParallel(input_layouts=Shard(1)), "w2": RowwiseParallel(output_layouts=Shard(1))})
    fully_shard(l, mesh=mesh["dp"])
fully_shard(net, mesh=mesh["dp"])
opt = torch.optim.AdamW(net.parameters(), lr=3e-3, foreach=True)
for step in range(5):
    t = torch.randint(0, 40, (4, 8), generator=torch.Generator().manual_seed(step * 10 + dp))
    opt.zero_grad()
    o = net(t); loss = F.cross_entropy(o.flatten(0, 1), t.flatten()); loss.backward()
    truth(step, "layers.0.w1", "wgrad", net.layers[0].w1.weight.grad); truth(step, "layers.0.w1", "weight", net.layers[0].w1.weight)
    opt.step(); say("rank", r, step, loss.item())
say("rank", r, digest(net.state_dict())); dist.destroy_process_group()
