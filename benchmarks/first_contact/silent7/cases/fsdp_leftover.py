"""FSDP2 applied to the blocks; embedding, final norm and head stay plain tensors on every rank."""
import argparse, torch, torch.distributed as dist, torch.nn as nn, torch.nn.functional as F
from torch.distributed.device_mesh import init_device_mesh
from torch.distributed.fsdp import fully_shard
from torch.distributed.tensor import DTensor
ap = argparse.ArgumentParser(); ap.add_argument("--healthy", action="store_true"); args = ap.parse_args()
dist.init_process_group("gloo"); rank, world = dist.get_rank(), dist.get_world_size()

class Block(nn.Module):
    def __init__(self, d):
        super().__init__()
        self.norm, self.mix, self.up, self.down = nn.LayerNorm(d), nn.Linear(2 * d, d), nn.Linear(d, 2 * d), nn.Linear(2 * d, d)
    def forward(self, x):
        h = self.norm(x)
        x = x + self.mix(torch.cat([h, F.pad(h, (0, 0, 1, -1))], -1))          # this token and the one before
        return x + self.down(F.gelu(self.up(x)))

class LM(nn.Module):
    def __init__(self, vocab=60, d=32):
        super().__init__()
        self.embed, self.layers = nn.Embedding(vocab, d), nn.ModuleList(Block(d) for _ in range(2))
        self.norm, self.lm_head = nn.LayerNorm(d), nn.Linear(d, vocab, bias=False)
    def forward(self, ids):
        x = self.embed(ids)
        for layer in self.layers:
            x = layer(x)
        return self.lm_head(self.norm(x))

torch.manual_seed(0)
model = LM()
mesh = init_device_mesh("cpu", (world,))
for layer in model.layers:
    fully_shard(layer, mesh=mesh)
leftover = [p for p in model.parameters() if not isinstance(p, DTensor)]
sharded = [p for p in model.parameters() if isinstance(p, DTensor)]
opt = torch.optim.AdamW([{"params": sharded}, {"params": leftover}], lr=2e-3, foreach=False)
gen = torch.Generator().manual_seed(rank)
for step in range(60):
    ids = (torch.randint(0, 60, (12, 1), generator=gen) + torch.arange(13) * torch.randint(1, 4, (12, 1), generator=gen)) % 60
    loss = F.cross_entropy(model(ids[:, :-1]).flatten(0, 1), ids[:, 1:].flatten())
    opt.zero_grad()
    loss.backward()
    if args.healthy:
        for p in leftover:
            dist.all_reduce(p.grad)
            p.grad /= world
    opt.step()
    if rank == 0 and step % 20 == 0:
        print(f"step {step} loss {loss.item():.4f}")
flat = torch.cat([p.detach().flatten() for p in leftover])
out = [torch.empty_like(flat) for _ in range(world)]
dist.all_gather(out, flat)
if rank == 0:
    print(f"ranks' embedding, norm and head are equal {torch.equal(*out)}, largest difference {(out[0] - out[1]).abs().max():.2e}")
dist.barrier()
dist.destroy_process_group()
