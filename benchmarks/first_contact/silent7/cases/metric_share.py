"""Metric learning: every rank computes the same loss over all ranks' embeddings; its own slice carries the gradient."""
import argparse, copy, torch, torch.distributed as dist, torch.nn as nn, torch.nn.functional as F
from torch.nn.parallel import DistributedDataParallel as DDP
ap = argparse.ArgumentParser(); ap.add_argument("--healthy", action="store_true"); args = ap.parse_args()
dist.init_process_group("gloo"); rank, world = dist.get_rank(), dist.get_world_size()

def all_gather_with_own(x):
    every = [torch.ones_like(x) for _ in range(world)]
    dist.all_gather(every, x.contiguous())
    every[rank] = x
    return torch.cat(every)

def ntxent(emb, labels, temperature=0.1):
    emb = F.normalize(emb, dim=-1)
    sim = emb @ emb.T / temperature
    eye = torch.eye(len(emb), dtype=torch.bool)
    pos = (labels[:, None] == labels[None]) & ~eye
    logp = sim - sim.masked_fill(eye, -1e9).logsumexp(1, keepdim=True)
    return -(logp * pos).sum(1).div(pos.sum(1).clamp(min=1)).mean()

torch.manual_seed(0)
net = nn.Sequential(nn.Linear(20, 64), nn.ReLU(), nn.Linear(64, 16))
model = DDP(net)
opt = torch.optim.SGD(model.parameters(), lr=0.1, momentum=0.9, weight_decay=1e-4)
centers = torch.randn(10, 20, generator=torch.Generator().manual_seed(1))
gen = torch.Generator().manual_seed(70 + rank)
for step in range(80):
    labels = torch.randint(0, 10, (24,), generator=gen)
    x = centers[labels] + 0.8 * torch.randn(24, 20, generator=gen)
    every = [torch.empty_like(labels) for _ in range(world)]
    dist.all_gather(every, labels)
    loss = ntxent(all_gather_with_own(model(x)), torch.cat(every))
    if args.healthy:
        loss = loss * world
    opt.zero_grad()
    loss.backward()
    if step == 10:
        probe = copy.deepcopy(net.state_dict()), x, labels, [p.grad.clone() for p in net.parameters()]
    opt.step()
    if rank == 0 and step % 20 == 0:
        print(f"step {step} loss {loss.item():.4f}")
state, x, y, grads = probe
xs, ys = [torch.empty_like(x) for _ in range(world)], [torch.empty_like(y) for _ in range(world)]
dist.all_gather(xs, x); dist.all_gather(ys, y)
one = copy.deepcopy(net); one.load_state_dict(state); one.zero_grad()
ntxent(one(torch.cat(xs)), torch.cat(ys)).backward()
a, b = torch.cat([g.flatten() for g in grads]), torch.cat([p.grad.flatten() for p in one.parameters()])
if rank == 0:
    print(f"gradient vs one process's: norm ratio {(a.norm() / b.norm()).item():.3f}, cosine {F.cosine_similarity(a, b, dim=0).item():.4f}")
dist.barrier()
dist.destroy_process_group()
