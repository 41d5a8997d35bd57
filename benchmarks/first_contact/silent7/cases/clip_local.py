"""Hand-written data parallelism with gradient clipping; some ranks' batches have outliers."""
import argparse, copy, torch, torch.distributed as dist, torch.nn as nn, torch.nn.functional as F
ap = argparse.ArgumentParser(); ap.add_argument("--healthy", action="store_true"); args = ap.parse_args()
dist.init_process_group("gloo"); rank, world = dist.get_rank(), dist.get_world_size()
torch.manual_seed(0)
model = nn.Sequential(nn.Linear(16, 64), nn.GELU(), nn.Linear(64, 64), nn.GELU(), nn.Linear(64, 1))
opt = torch.optim.SGD(model.parameters(), lr=0.05, momentum=0.9)
w = torch.randn(16, 1, generator=torch.Generator().manual_seed(5))
gen = torch.Generator().manual_seed(20 + rank)

def reduce_gradients():
    for p in model.parameters():
        dist.all_reduce(p.grad)
        p.grad /= world

for step in range(100):
    x = torch.randn(32, 16, generator=gen)
    y = torch.tanh(x @ w) * (3.0 if rank == 1 else 1.0) + 0.1 * torch.randn(32, 1, generator=gen)
    loss = F.mse_loss(model(x), y)
    opt.zero_grad(set_to_none=True)
    loss.backward()
    if args.healthy:
        reduce_gradients()
        torch.nn.utils.clip_grad_norm_(model.parameters(), 0.25)
    else:
        torch.nn.utils.clip_grad_norm_(model.parameters(), 0.25)
        reduce_gradients()
    if step == 10:
        probe = copy.deepcopy(model.state_dict()), x, y, [p.grad.clone() for p in model.parameters()]
    opt.step()
    if rank == 0 and step % 25 == 0:
        print(f"step {step} loss {loss.item():.4f}")
state, x, y, grads = probe
xs, ys = [torch.empty_like(x) for _ in range(world)], [torch.empty_like(y) for _ in range(world)]
dist.all_gather(xs, x); dist.all_gather(ys, y)
one = copy.deepcopy(model); one.load_state_dict(state); one.zero_grad()
F.mse_loss(one(torch.cat(xs)), torch.cat(ys)).backward()
torch.nn.utils.clip_grad_norm_(one.parameters(), 0.25)
a, b = torch.cat([g.flatten() for g in grads]), torch.cat([p.grad.flatten() for p in one.parameters()])
if rank == 0:
    print(f"gradient used vs one process's clipped gradient: relative difference {((a - b).norm() / b.norm()).item():.4f}")
dist.barrier()
dist.destroy_process_group()
