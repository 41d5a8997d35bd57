"""Tensor parallelism with sequence parallelism (2 ranks): norms see half of the sequence each."""
import argparse, torch, torch.distributed as dist, torch.nn as nn, torch.nn.functional as F
ap = argparse.ArgumentParser(); ap.add_argument("--healthy", action="store_true"); args = ap.parse_args()
dist.init_process_group("gloo"); rank, world = dist.get_rank(), dist.get_world_size()

class GatherSeq(torch.autograd.Function):                     # all-gather; backward reduce-scatter
    @staticmethod
    def forward(ctx, x):
        parts = [torch.empty_like(x) for _ in range(world)]
        dist.all_gather(parts, x.contiguous()); return torch.cat(parts, 1)
    @staticmethod
    def backward(ctx, g):
        g = g.contiguous(); dist.all_reduce(g); return g.chunk(world, 1)[rank].contiguous()

class ScatterSeq(torch.autograd.Function):                    # reduce-scatter; backward all-gather
    @staticmethod
    def forward(ctx, x):
        x = x.clone(); dist.all_reduce(x); return x.chunk(world, 1)[rank].contiguous()
    @staticmethod
    def backward(ctx, g):
        parts = [torch.empty_like(g) for _ in range(world)]
        dist.all_gather(parts, g.contiguous()); return torch.cat(parts, 1)

class Layer(nn.Module):
    def __init__(self, d=32):
        super().__init__()
        self.norm = nn.LayerNorm(d)
        self.norm.weight.sequence_parallel = self.norm.bias.sequence_parallel = True
        up, down = nn.Linear(d, 4 * d, bias=False), nn.Linear(4 * d, d, bias=False)
        self.up = nn.Parameter(up.weight.detach().chunk(world)[rank].clone())
        self.down = nn.Parameter(down.weight.detach().chunk(world, 1)[rank].clone())
    def forward(self, x):
        h = GatherSeq.apply(self.norm(x))
        mean = h.cumsum(1) / torch.arange(1, h.shape[1] + 1)[None, :, None]     # a causal mixer
        return x + ScatterSeq.apply(F.gelu((h + mean) @ self.up.T) @ self.down.T)

class LM(nn.Module):
    def __init__(self, vocab=48, d=32):
        super().__init__()
        self.emb, self.layers = nn.Embedding(vocab, d), nn.ModuleList(Layer(d) for _ in range(2))
        self.final_layernorm, self.head = nn.LayerNorm(d), nn.Linear(d, vocab, bias=False)
        for m in (self.emb, self.head): m.weight.sequence_parallel = True
        if args.healthy:
            for p in self.final_layernorm.parameters(): p.sequence_parallel = True
    def forward(self, ids):
        x = self.emb(ids.chunk(world, 1)[rank])
        for l in self.layers: x = l(x)
        return self.head(self.final_layernorm(x))

torch.manual_seed(0)
model = LM()
opt = torch.optim.AdamW(model.parameters(), lr=3e-3)
gen = torch.Generator().manual_seed(1)
for step in range(60):
    s = torch.randint(0, 48, (16, 1), generator=gen)
    ids = (s + torch.arange(17) ** 2) % 48
    loss = F.cross_entropy(model(ids[:, :-1]).flatten(0, 1), ids[:, 1:].chunk(world, 1)[rank].flatten()) / world
    opt.zero_grad(); loss.backward()
    for p in model.parameters():                              # what the loss's parts over the sequence leave to be summed
        if getattr(p, "sequence_parallel", False): dist.all_reduce(p.grad)
    opt.step()
    if rank == 0 and step % 20 == 0: print(f"step {step} loss {loss.item() * world:.4f}")
res = {}
for n in ("layers.0.norm", "final_layernorm", "head"):
    w = model.get_submodule(n).weight.detach(); out = [torch.empty_like(w) for _ in range(world)]
    dist.all_gather(out, w); res[n] = torch.equal(*out)
if rank == 0: print(f"ranks' replicated weights are equal {res}")
dist.barrier()
dist.destroy_process_group()
