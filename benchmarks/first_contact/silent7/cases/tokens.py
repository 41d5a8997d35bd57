"""Causal LM on padded sequences: mean loss over each rank's own tokens, DDP's mean over ranks."""
import argparse, copy, torch, torch.distributed as dist, torch.nn as nn, torch.nn.functional as F
from torch.nn.parallel import DistributedDataParallel as DDP
ap = argparse.ArgumentParser(); ap.add_argument("--healthy", action="store_true"); args = ap.parse_args()
dist.init_process_group("gloo"); rank, world = dist.get_rank(), dist.get_world_size()
torch.manual_seed(0)

class LM(nn.Module):
    def __init__(self, vocab=64, d=32):
        super().__init__()
        self.emb, self.rnn, self.head = nn.Embedding(vocab, d, padding_idx=0), nn.GRU(d, d, batch_first=True), nn.Linear(d, vocab)
    def forward(self, ids):
        return self.head(self.rnn(self.emb(ids))[0])

def batch(gen, n=8, length=24):
    ids = torch.randint(1, 64, (n, length), generator=gen).cumsum(1) % 63 + 1
    lengths = torch.randint(3, length if torch.rand((), generator=gen) < 0.5 else 6, (n,), generator=gen)
    labels = ids.clone()
    for i, l in enumerate(lengths):
        ids[i, l:], labels[i, l:] = 0, -100
    return ids, labels

def ce(logits, labels, reduction):
    return F.cross_entropy(logits[:, :-1].flatten(0, 1), labels[:, 1:].flatten(), ignore_index=-100, reduction=reduction)

net = LM()
model = DDP(net)
opt = torch.optim.AdamW(model.parameters(), lr=3e-3)
gen = torch.Generator().manual_seed(30 + rank)
for step in range(80):
    ids, labels = batch(gen)
    if args.healthy:
        count = (labels[:, 1:] != -100).sum().float()
        dist.all_reduce(count)
        loss = ce(model(ids), labels, "sum") * world / count
    else:
        loss = ce(model(ids), labels, "mean")
    opt.zero_grad()
    loss.backward()
    if step == 20:
        probe = copy.deepcopy(net.state_dict()), ids, labels, [p.grad.clone() for p in net.parameters()]
    opt.step()
    if rank == 0 and step % 20 == 0:
        print(f"step {step} loss {loss.item():.4f}")
state, x, y, grads = probe
xs, ys = [torch.empty_like(x) for _ in range(world)], [torch.empty_like(y) for _ in range(world)]
dist.all_gather(xs, x); dist.all_gather(ys, y)
one = copy.deepcopy(net); one.load_state_dict(state); one.zero_grad()
ce(one(torch.cat(xs)), torch.cat(ys), "mean").backward()
a, b = torch.cat([g.flatten() for g in grads]), torch.cat([p.grad.flatten() for p in one.parameters()])
if rank == 0:
    print(f"labels by rank {[int((v != -100).sum()) for v in ys]}; gradient vs one process's: relative difference {((a - b).norm() / b.norm()).item():.4f}")
dist.barrier()
dist.destroy_process_group()
