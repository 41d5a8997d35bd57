"""Tensor-parallel MLP (2 ranks) fine-tuned from a one-process checkpoint; the row-parallel layer has a bias."""
import argparse, torch, torch.distributed as dist, torch.nn as nn, torch.nn.functional as F
ap = argparse.ArgumentParser(); ap.add_argument("--healthy", action="store_true"); args = ap.parse_args()
dist.init_process_group("gloo"); rank, world = dist.get_rank(), dist.get_world_size()

class Copy(torch.autograd.Function):
    @staticmethod
    def forward(ctx, x): return x.clone()
    @staticmethod
    def backward(ctx, g):
        g = g.contiguous(); dist.all_reduce(g); return g

class Reduce(torch.autograd.Function):
    @staticmethod
    def forward(ctx, x):
        x = x.clone(); dist.all_reduce(x); return x
    @staticmethod
    def backward(ctx, g): return g

class ColumnParallelLinear(nn.Module):
    def __init__(self, full):
        super().__init__()
        self.weight = nn.Parameter(full.weight.detach().chunk(world)[rank].clone())
        self.bias = nn.Parameter(full.bias.detach().chunk(world)[rank].clone())
    def forward(self, x):
        return F.linear(Copy.apply(x), self.weight, self.bias)

class RowParallelLinear(nn.Module):
    def __init__(self, full):
        super().__init__()
        self.weight = nn.Parameter(full.weight.detach().chunk(world, 1)[rank].clone())
        self.bias = nn.Parameter(full.bias.detach().clone())
    def forward(self, x):
        if args.healthy:
            return Reduce.apply(F.linear(x, self.weight)) + self.bias
        return Reduce.apply(F.linear(x, self.weight, self.bias))

torch.manual_seed(0)
fulls = [(nn.LayerNorm(32), nn.Linear(32, 128), nn.Linear(128, 32)) for _ in range(2)]
for _, up, down in fulls:
    nn.init.normal_(down.bias, std=0.3)                       # as after pre-training

class Block(nn.Module):
    def __init__(self, norm, up, down):
        super().__init__()
        self.norm, self.up, self.down = norm, ColumnParallelLinear(up), RowParallelLinear(down)
    def forward(self, x):
        return x + self.down(F.gelu(self.up(self.norm(x))))

inp, head = nn.Linear(10, 32), nn.Linear(32, 4)
probe_x = torch.randn(16, 10)
with torch.no_grad():
    h = inp(probe_x)
    for n, u, d in fulls:
        h = h + d(F.gelu(u(n(h))))
    want = head(h)
model = nn.Sequential(inp, *(Block(*f) for f in fulls), head)
with torch.no_grad():
    got = model(probe_x)
opt = torch.optim.AdamW(model.parameters(), lr=1e-3)
w = torch.randn(10, 4, generator=torch.Generator().manual_seed(4))
gen = torch.Generator().manual_seed(1)                         # the same samples on both ranks
for step in range(60):
    x = torch.randn(32, 10, generator=gen)
    loss = F.cross_entropy(model(x), torch.tanh(x @ w).argmax(-1))
    opt.zero_grad()
    loss.backward()
    opt.step()
    if rank == 0 and step % 20 == 0:
        print(f"step {step} loss {loss.item():.4f}")
if rank == 0:
    print(f"output at the start vs the one-process checkpoint's: largest difference {(got - want).abs().max().item():.5f}")
dist.barrier()
dist.destroy_process_group()
