"""Mixture of experts over 2 ranks: tokens and routing probabilities are gathered, each rank runs its expert."""
import argparse, torch, torch.distributed as dist, torch.nn as nn, torch.nn.functional as F
import torch.distributed.nn.functional as dF
ap = argparse.ArgumentParser(); ap.add_argument("--healthy", action="store_true"); args = ap.parse_args()
dist.init_process_group("gloo"); rank, world = dist.get_rank(), dist.get_world_size()

class MoE(nn.Module):
    def __init__(self, d=24):
        super().__init__()
        self.embed = nn.Linear(10, d)
        self.gate = nn.Linear(d, world, bias=False)
        torch.manual_seed(100 + rank)
        self.expert = nn.Sequential(nn.Linear(d, 48), nn.GELU(), nn.Linear(48, d))
        torch.manual_seed(1)
        self.out = nn.Linear(d, 1)
    def gather_probs(self, probs):
        if args.healthy:
            return torch.cat(dF.all_gather(probs))
        every = [torch.empty_like(probs) for _ in range(world)]
        dist.all_gather(every, probs)
        return torch.cat(every)
    def forward(self, x):
        h = self.embed(x)
        probs = self.gate(h).softmax(-1)
        aux = world * (probs.mean(0) * F.one_hot(probs.argmax(-1), world).float().mean(0)).sum()
        tokens, weights = torch.cat(dF.all_gather(h)), self.gather_probs(probs)
        y = dF.all_reduce(weights[:, rank:rank + 1] * self.expert(tokens)).chunk(world)[rank]
        return self.out(h + y), aux

torch.manual_seed(0)
model = MoE()
shared = [p for n, p in model.named_parameters() if not n.startswith("expert")]
opt = torch.optim.AdamW(model.parameters(), lr=3e-3)
gen = torch.Generator().manual_seed(90 + rank)
a = torch.randn(10, 2, generator=torch.Generator().manual_seed(3))
target = lambda x: torch.where(x[:, :1] > 0, torch.sin(x @ a[:, :1]), x @ a[:, 1:])
for step in range(100):
    x = torch.randn(32, 10, generator=gen)
    pred, aux = model(x)
    main = F.mse_loss(pred, target(x))
    opt.zero_grad()
    (main + 0.01 * aux).backward()
    for p in model.expert.parameters():
        p.grad /= world
    for p in shared:
        dist.all_reduce(p.grad)
        p.grad /= world
    opt.step()
    if rank == 0 and step % 25 == 0:
        print(f"step {step} loss {main.item():.4f} aux {aux.item():.4f}")
pred, _ = model(x)
g, = torch.autograd.grad(F.mse_loss(pred, target(x)), [model.gate.weight], allow_unused=True)
if rank == 0:
    print(f"router's gradient from the main loss: {'none' if g is None else f'norm {g.norm().item():.4f}'}")
dist.barrier()
dist.destroy_process_group()
