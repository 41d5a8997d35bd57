"""VQ autoencoder with an EMA codebook in buffers, under DDP."""
import argparse, torch, torch.distributed as dist, torch.nn as nn, torch.nn.functional as F
from torch.nn.parallel import DistributedDataParallel as DDP
ap = argparse.ArgumentParser(); ap.add_argument("--healthy", action="store_true"); args = ap.parse_args()
dist.init_process_group("gloo"); rank, world = dist.get_rank(), dist.get_world_size()

class Codebook(nn.Module):
    def __init__(self, n=16, d=8, decay=0.9):
        super().__init__()
        self.decay = decay
        embed = torch.randn(n, d)
        self.register_buffer("embed", embed)
        self.register_buffer("embed_avg", embed.clone())
        self.register_buffer("cluster_size", torch.ones(n))
        self.register_buffer("seen", torch.zeros(n))
    def forward(self, z):
        index = torch.cdist(z, self.embed).argmin(-1)
        q = self.embed[index]
        if self.training:
            with torch.no_grad():
                onehot = F.one_hot(index, len(self.embed)).to(z.dtype)
                size, total = onehot.sum(0), onehot.T @ z
                if args.healthy:
                    dist.all_reduce(size); dist.all_reduce(total)
                self.seen += size
                self.cluster_size.lerp_(size, 1 - self.decay)
                self.embed_avg.lerp_(total, 1 - self.decay)
                smooth = (self.cluster_size + 1e-2) / (self.cluster_size.sum() + 0.16) * self.cluster_size.sum()
                self.embed.copy_(self.embed_avg / smooth[:, None])
        return z + (q - z).detach(), F.mse_loss(z, q.detach())

class VQVAE(nn.Module):
    def __init__(self):
        super().__init__()
        self.enc, self.vq = nn.Sequential(nn.Linear(20, 48), nn.ReLU(), nn.Linear(48, 8)), Codebook()
        self.dec = nn.Sequential(nn.Linear(8, 48), nn.ReLU(), nn.Linear(48, 20))
    def forward(self, x):
        q, commit = self.vq(self.enc(x))
        return self.dec(q), commit

torch.manual_seed(0)
net = VQVAE()
model = DDP(net)
opt = torch.optim.AdamW(model.parameters(), lr=2e-3)
centers = torch.randn(12, 20, generator=torch.Generator().manual_seed(1))
gen = torch.Generator().manual_seed(rank)
drawn = 0
for step in range(80):
    x = centers[torch.randint(0, 12, (64,), generator=gen)] + 0.2 * torch.randn(64, 20, generator=gen)
    recon, commit = model(x)
    loss = F.mse_loss(recon, x) + 0.25 * commit
    opt.zero_grad()
    loss.backward()
    opt.step()
    drawn += 64 * world
    if rank == 0 and step % 20 == 0:
        print(f"step {step} loss {loss.item():.4f}")
if rank == 0:
    print(f"vectors that the codebook's statistics hold {int(net.vq.seen.sum())} of {drawn} trained on")
dist.barrier()
dist.destroy_process_group()
