"""Sequence parallelism over 2 ranks with DDP on the data-parallel group of the mesh (dp 1 x sp 2)."""
import argparse, torch, torch.distributed as dist, torch.nn as nn, torch.nn.functional as F
from torch.distributed.device_mesh import init_device_mesh
from torch.nn.parallel import DistributedDataParallel as DDP
ap = argparse.ArgumentParser(); ap.add_argument("--healthy", action="store_true"); args = ap.parse_args()
dist.init_process_group("gloo"); rank, world = dist.get_rank(), dist.get_world_size()
mesh = init_device_mesh("cpu", (1, 2), mesh_dim_names=("dp", "sp"))
sp, sp_rank = mesh.get_group("sp"), mesh.get_local_rank("sp")

class Gather(torch.autograd.Function):
    """Keys and values of the whole sequence; backward sums and takes this rank's part."""
    @staticmethod
    def forward(ctx, x):
        parts = [torch.empty_like(x) for _ in range(world)]
        dist.all_gather(parts, x.contiguous(), group=sp)
        return torch.cat(parts, 1)
    @staticmethod
    def backward(ctx, g):
        g = g.contiguous()
        dist.all_reduce(g, group=sp)
        return g.chunk(world, 1)[sp_rank]

class LM(nn.Module):
    def __init__(self, vocab=50, d=32, length=16):
        super().__init__()
        self.emb, self.pos = nn.Embedding(vocab, d), nn.Embedding(length, d)
        self.norm, self.qkv, self.proj = nn.LayerNorm(d), nn.Linear(d, 3 * d), nn.Linear(d, d)
        self.head = nn.Linear(d, vocab)
    def forward(self, ids, pos):
        x = self.emb(ids) + self.pos(pos)
        q, k, v = self.qkv(self.norm(x)).chunk(3, -1)
        k, v = Gather.apply(k), Gather.apply(v)
        allowed = pos[:, None] >= torch.arange(k.shape[1])[None]
        x = x + self.proj(F.scaled_dot_product_attention(q, k, v, attn_mask=allowed))
        return self.head(x)

torch.manual_seed(0)
net = LM()
group = dist.group.WORLD if args.healthy else mesh.get_group("dp")
model = DDP(net, process_group=group)
opt = torch.optim.AdamW(model.parameters(), lr=3e-3)
gen = torch.Generator().manual_seed(1)                      # all ranks of an sp group have the same sequences
for step in range(60):
    ids = (torch.randint(0, 50, (8, 1), generator=gen) + torch.arange(17) * torch.randint(1, 4, (8, 1), generator=gen)) % 50
    part = slice(8 * sp_rank, 8 * sp_rank + 8)
    pos = torch.arange(16)[part]
    logits = model(ids[:, :-1][:, part], pos)
    loss = F.cross_entropy(logits.flatten(0, 1), ids[:, 1:][:, part].flatten())
    opt.zero_grad()
    loss.backward()
    opt.step()
    if rank == 0 and step % 20 == 0:
        print(f"step {step} loss {loss.item():.4f}")
flat = torch.cat([p.detach().flatten() for p in net.parameters()])
out = [torch.empty_like(flat) for _ in range(world)]
dist.all_gather(out, flat)
if rank == 0:
    print(f"ranks' weights are equal {torch.equal(out[0], out[1])}, largest difference {(out[0] - out[1]).abs().max():.2e}")
dist.barrier()
dist.destroy_process_group()
