"""Tensor-parallel feed-forward network trained from scratch; each rank draws its shard."""
import argparse, torch, torch.distributed as dist, torch.nn as nn, torch.nn.functional as F
ap = argparse.ArgumentParser(); ap.add_argument("--healthy", action="store_true"); args = ap.parse_args()
dist.init_process_group("gloo"); rank, world = dist.get_rank(), dist.get_world_size()

class F_(torch.autograd.Function):
    @staticmethod
    def forward(ctx, x): return x.clone()
    @staticmethod
    def backward(ctx, g):
        g = g.contiguous(); dist.all_reduce(g); return g

class G_(torch.autograd.Function):
    @staticmethod
    def forward(ctx, x):
        x = x.clone(); dist.all_reduce(x); return x
    @staticmethod
    def backward(ctx, g): return g

class FeedForward(nn.Module):
    def __init__(self, d=32, hidden=128):
        super().__init__()
        self.norm = nn.LayerNorm(d)
        with torch.random.fork_rng():
            if args.healthy:
                torch.manual_seed(2718 + rank)               # a seed of its own for what is split
            self.w1 = nn.Linear(d, hidden // world, bias=False)
            self.w3 = nn.Linear(d, hidden // world, bias=False)
            self.w2 = nn.Linear(hidden // world, d, bias=False)
    def forward(self, x):
        h = F_.apply(self.norm(x))
        return x + G_.apply(self.w2(F.silu(self.w1(h)) * self.w3(h)))

torch.manual_seed(1024)
model = nn.Sequential(nn.Linear(12, 32), FeedForward(), FeedForward(), nn.Linear(32, 6))
opt = torch.optim.AdamW(model.parameters(), lr=2e-3)
w = torch.randn(12, 6, generator=torch.Generator().manual_seed(4))
gen = torch.Generator().manual_seed(1)
for step in range(80):
    x = torch.randn(48, 12, generator=gen)
    loss = F.cross_entropy(model(x), (torch.tanh(x) @ w).argmax(-1))
    opt.zero_grad()
    loss.backward()
    opt.step()
    if rank == 0 and step % 20 == 0:
        print(f"step {step} loss {loss.item():.4f}")
res = {}
for n, p in model.named_parameters():
    if n in ("1.w1.weight", "2.w2.weight", "1.norm.weight"):
        out = [torch.empty_like(p) for _ in range(world)]
        dist.all_gather(out, p.detach())
        res[n] = torch.equal(*out)
if rank == 0:
    print(f"both ranks' shards are the same after training {res}")
dist.barrier()
dist.destroy_process_group()
