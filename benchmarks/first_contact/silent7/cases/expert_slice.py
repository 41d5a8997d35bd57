"""Expert parallelism: tokens are gathered over 2 ranks, each rank computes its own expert, outputs are summed."""
import argparse, torch, torch.distributed as dist, torch.nn as nn, torch.nn.functional as F
ap = argparse.ArgumentParser(); ap.add_argument("--healthy", action="store_true"); args = ap.parse_args()
dist.init_process_group("gloo"); rank, world = dist.get_rank(), dist.get_world_size()

class GatherTokens(torch.autograd.Function):
    @staticmethod
    def forward(ctx, x):
        parts = [torch.empty_like(x) for _ in range(world)]
        dist.all_gather(parts, x.contiguous())
        return torch.cat(parts)
    @staticmethod
    def backward(ctx, g):
        if args.healthy:
            g = g.contiguous()
            dist.all_reduce(g)
        return g.chunk(world)[rank]

class SumAndSplit(torch.autograd.Function):
    """Sums the experts' outputs, keeps this rank's tokens (a reduce-scatter); backward gathers."""
    @staticmethod
    def forward(ctx, x):
        x = x.clone()
        dist.all_reduce(x)
        return x.chunk(world)[rank].clone()
    @staticmethod
    def backward(ctx, g):
        parts = [torch.empty_like(g) for _ in range(world)]
        dist.all_gather(parts, g.contiguous())
        return torch.cat(parts)

class MoE(nn.Module):
    def __init__(self, d=24):
        super().__init__()
        self.embed = nn.Linear(10, d)
        self.router = nn.Linear(d, world)
        torch.manual_seed(100 + rank)
        self.expert = nn.Sequential(nn.Linear(d, 48), nn.GELU(), nn.Linear(48, d))    # this rank's expert
        torch.manual_seed(1)
        self.out = nn.Linear(d, 4)
    def forward(self, x):
        h = self.embed(x)
        both = GatherTokens.apply(torch.cat([h, self.router(h).softmax(-1)], -1))
        h_all, gate = both[:, :-world], both[:, -world:]
        y = SumAndSplit.apply(gate[:, rank:rank + 1] * self.expert(h_all))
        return self.out(h + y)

torch.manual_seed(0)
model = MoE()
shared = [p for n, p in model.named_parameters() if not n.startswith("expert")]
opt = torch.optim.AdamW(model.parameters(), lr=3e-3)
w = torch.randn(10, 4, generator=torch.Generator().manual_seed(8))
gen = torch.Generator().manual_seed(80 + rank)
for step in range(80):
    x = torch.randn(32, 10, generator=gen)
    loss = F.cross_entropy(model(x), torch.tanh(x @ w).argmax(-1))
    opt.zero_grad()
    loss.backward()
    for p in model.expert.parameters():
        p.grad /= world                                  # an expert saw all ranks' tokens
    for p in shared:
        dist.all_reduce(p.grad)
        p.grad /= world
    opt.step()
    if rank == 0 and step % 20 == 0:
        print(f"step {step} loss {loss.item():.4f}")
# derivative of the mean loss in a direction of the embedding's weight, by central differences
model.double(); x = x.double(); y = torch.tanh(x @ w.double()).argmax(-1)
def total():
    l = F.cross_entropy(model(x), y); t = l.detach().clone(); dist.all_reduce(t); return l, t / world
opt.zero_grad(); total()[0].backward(); g = model.embed.weight.grad.clone(); dist.all_reduce(g); g /= world
d = torch.randn(g.shape, generator=torch.Generator().manual_seed(0), dtype=torch.double); eps = 1e-5
with torch.no_grad():
    model.embed.weight += eps * d; up = total()[1]; model.embed.weight -= 2 * eps * d; down = total()[1]
if rank == 0:
    print(f"embedding's directional derivative {(g * d).sum().item():.6f}, by differences {((up - down) / (2 * eps)).item():.6f}")
dist.barrier()
dist.destroy_process_group()
