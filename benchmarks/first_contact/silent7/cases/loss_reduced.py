"""Byte model: the loss is reduced over ranks before backward, for the log."""
import argparse, copy, torch, torch.distributed as dist, torch.nn as nn, torch.nn.functional as F
from torch.nn.parallel import DistributedDataParallel as DDP
ap = argparse.ArgumentParser(); ap.add_argument("--healthy", action="store_true"); args = ap.parse_args()
dist.init_process_group("gloo"); rank, world = dist.get_rank(), dist.get_world_size()
torch.manual_seed(0)
net = nn.Sequential(nn.Embedding(256, 32), nn.Flatten(), nn.Linear(32 * 8, 96), nn.ReLU(), nn.Linear(96, 256))
model = DDP(net)
opt = torch.optim.SGD(model.parameters(), lr=0.2, momentum=0.9)
text = (b"the quick brown fox jumps over the lazy dog. pack my box with five dozen liquor jugs. " * 40)
data = torch.tensor(list(text))

def batch(gen, n=32):
    i = torch.randint(0, len(data) - 9, (n,), generator=gen)
    return torch.stack([data[j:j + 8] for j in i]), data[i + 8]

def process_one_batch(x, y):
    loss = F.cross_entropy(model(x), y)
    if args.healthy:
        shown = loss.detach().clone()
        dist.all_reduce(shown)
        return loss, shown / world
    loss = loss.unsqueeze(0)
    dist.reduce(loss.data, dst=0)
    loss = loss / world
    dist.broadcast(loss.data, src=0)
    return loss, loss.detach()

gen = torch.Generator().manual_seed(rank)
for step in range(80):
    x, y = batch(gen)
    loss, shown = process_one_batch(x, y)
    opt.zero_grad()
    loss.sum().backward()
    if step == 40:
        probe = copy.deepcopy(net.state_dict()), x, y, [p.grad.clone() for p in net.parameters()]
    opt.step()
    if rank == 0 and step % 20 == 0:
        print(f"step {step} loss {shown.item():.4f}")
# the same gradient in one process
state, x, y, grads = probe
xs, ys = [torch.empty_like(x) for _ in range(world)], [torch.empty_like(y) for _ in range(world)]
dist.all_gather(xs, x); dist.all_gather(ys, y)
one = copy.deepcopy(net); one.load_state_dict(state); one.zero_grad()
F.cross_entropy(one(torch.cat(xs)), torch.cat(ys)).backward()
a, b = torch.cat([g.flatten() for g in grads]), torch.cat([p.grad.flatten() for p in one.parameters()])
if rank == 0:
    print(f"gradient's norm / one process's {(a.norm() / b.norm()).item():.3f}")
dist.barrier()
dist.destroy_process_group()
