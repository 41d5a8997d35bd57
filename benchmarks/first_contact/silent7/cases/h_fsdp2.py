"""Healthy: FSDP2 language model with clipping, a warmup schedule and accumulation by set_requires_gradient_sync; 160 steps."""
import torch, torch.distributed as dist, torch.nn as nn, torch.nn.functional as F
from torch.distributed.device_mesh import init_device_mesh
from torch.distributed.fsdp import fully_shard
dist.init_process_group("gloo"); rank, world = dist.get_rank(), dist.get_world_size()

class Block(nn.Module):
    def __init__(self, d):
        super().__init__()
        self.norm1, self.rnn = nn.RMSNorm(d), nn.GRU(d, d, batch_first=True)
        self.norm2, self.up, self.down = nn.RMSNorm(d), nn.Linear(d, 4 * d, bias=False), nn.Linear(4 * d, d, bias=False)
    def forward(self, x):
        x = x + self.rnn(self.norm1(x))[0]
        return x + self.down(F.silu(self.up(self.norm2(x))))

class LM(nn.Module):
    def __init__(self, vocab=64, d=32):
        super().__init__()
        self.emb, self.layers = nn.Embedding(vocab, d), nn.ModuleList(Block(d) for _ in range(2))
        self.norm, self.head = nn.RMSNorm(d), nn.Linear(d, vocab, bias=False)
    def forward(self, x):
        x = self.emb(x)
        for l in self.layers: x = l(x)
        return self.head(self.norm(x))

torch.manual_seed(0)
model = LM()
mesh = init_device_mesh("cpu", (world,), mesh_dim_names=("dp",))
for l in model.layers: fully_shard(l, mesh=mesh)
fully_shard(model, mesh=mesh)
opt = torch.optim.AdamW(model.parameters(), lr=3e-3, weight_decay=0.01)
sched = torch.optim.lr_scheduler.LinearLR(opt, 0.1, total_iters=20)
gen = torch.Generator().manual_seed(100 + rank)
for step in range(160):
    micro = 2
    for i in range(micro):
        model.set_requires_gradient_sync(i == micro - 1)
        s = torch.randint(0, 64, (8, 1), generator=gen)
        ids = (s + torch.arange(17) * 5 + (torch.arange(17) % 3) * 7) % 64
        loss = F.cross_entropy(model(ids[:, :-1]).flatten(0, 1), ids[:, 1:].flatten()) / micro
        loss.backward()
    norm = torch.nn.utils.clip_grad_norm_(model.parameters(), 1.0)
    opt.step(); sched.step(); opt.zero_grad()
    if step % 40 == 0:
        n, l = norm.full_tensor(), loss.detach().clone() * micro
        dist.all_reduce(l)
        if rank == 0: print(f"step {step} loss {l.item() / world:.4f} norm {n.item():.3f}")
full = torch.cat([p.full_tensor().detach().flatten() for p in model.parameters()])
if rank == 0: print(f"160 steps, weights finite {bool(full.isfinite().all())}, last loss {loss.item() * micro:.4f}")
dist.barrier()
dist.destroy_process_group()
