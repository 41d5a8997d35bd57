"""Healthy: hand-written data parallelism (broadcast, one flat all_reduce), global token mean, global clipping; 300 steps."""
import torch, torch.distributed as dist, torch.nn as nn, torch.nn.functional as F
from torch._utils import _flatten_dense_tensors, _unflatten_dense_tensors
dist.init_process_group("gloo"); rank, world = dist.get_rank(), dist.get_world_size()
torch.manual_seed(rank)

class Tagger(nn.Module):
    def __init__(self, vocab=12, d=32, tags=5):
        super().__init__()
        self.emb, self.rnn = nn.Embedding(vocab, d, padding_idx=0), nn.GRU(d, d, batch_first=True, bidirectional=True)
        self.drop, self.out = nn.Dropout(0.1), nn.Linear(2 * d, tags)
    def forward(self, x):
        return self.out(self.drop(self.rnn(self.emb(x))[0]))

model = Tagger()
for t in list(model.parameters()) + list(model.buffers()):
    dist.broadcast(t.data, 0)
opt = torch.optim.Adam(model.parameters(), lr=3e-3)
sched = torch.optim.lr_scheduler.StepLR(opt, 100, 0.5)
gen = torch.Generator().manual_seed(500 + rank)
table = torch.randint(0, 5, (12, 12), generator=torch.Generator().manual_seed(1))

def batch(n=12, length=20):
    x = torch.randint(1, 12, (n, length), generator=gen)
    y = table[x, x.roll(1, 1)]
    for i, l in enumerate(torch.randint(6, length + 1, (n,), generator=gen)):
        x[i, l:], y[i, l:] = 0, -100
    y[:, 0] = -100
    return x, y

for step in range(300):
    x, y = batch()
    count = (y != -100).sum().float()
    dist.all_reduce(count)
    loss = F.cross_entropy(model(x).flatten(0, 1), y.flatten(), ignore_index=-100, reduction="sum") / count
    opt.zero_grad()
    loss.backward()
    grads = [p.grad for p in model.parameters()]
    flat = _flatten_dense_tensors(grads)
    dist.all_reduce(flat)
    for g, f in zip(grads, _unflatten_dense_tensors(flat, grads)): g.copy_(f)
    torch.nn.utils.clip_grad_norm_(model.parameters(), 1.0)
    opt.step(); sched.step()
    if step % 60 == 0:
        shown = loss.detach().clone(); dist.all_reduce(shown)
        if rank == 0: print(f"step {step} loss {shown.item():.4f}")
flat = torch.cat([p.detach().flatten() for p in model.parameters()]); out = [torch.empty_like(flat) for _ in range(world)]
dist.all_gather(out, flat)
if rank == 0: print(f"300 steps, ranks' weights are equal {torch.equal(*out)}, last loss {shown.item():.4f}")
dist.barrier()
dist.destroy_process_group()
