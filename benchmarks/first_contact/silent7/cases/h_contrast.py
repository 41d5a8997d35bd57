"""Healthy: CLIP-like training with a gather that carries gradients, learnable temperature, momentum-free; 200 steps."""
import math, torch, torch.distributed as dist, torch.nn as nn, torch.nn.functional as F
from torch.nn.parallel import DistributedDataParallel as DDP
dist.init_process_group("gloo"); rank, world = dist.get_rank(), dist.get_world_size()

class Gather(torch.autograd.Function):
    @staticmethod
    def forward(ctx, x):
        every = [torch.empty_like(x) for _ in range(world)]
        dist.all_gather(every, x.contiguous())
        return torch.cat(every)
    @staticmethod
    def backward(ctx, g):
        g = g.clone()
        dist.all_reduce(g)
        return g.chunk(world)[rank]

class CLIP(nn.Module):
    def __init__(self):
        super().__init__()
        self.image = nn.Sequential(nn.Conv2d(1, 8, 3, 2, 1), nn.ReLU(), nn.Conv2d(8, 16, 3, 2, 1), nn.ReLU(), nn.Flatten(), nn.Linear(64, 24))
        self.text_emb, self.text = nn.Embedding(32, 32), nn.GRU(32, 24, batch_first=True)
        self.logit_scale = nn.Parameter(torch.tensor(math.log(1 / 0.07)))
    def forward(self, image, ids):
        t = self.text(self.text_emb(ids))[0][:, -1]
        return F.normalize(self.image(image), dim=-1), F.normalize(t, dim=-1), self.logit_scale.exp()

torch.manual_seed(0)
net = CLIP()
model = DDP(net)
opt = torch.optim.AdamW(model.parameters(), lr=2e-3, weight_decay=0.01)
sched = torch.optim.lr_scheduler.CosineAnnealingLR(opt, 200)
gen = torch.Generator().manual_seed(rank)
pattern = torch.randn(32, 1, 8, 8, generator=torch.Generator().manual_seed(1))
for step in range(200):
    ids = torch.randint(0, 32, (16, 3), generator=gen)
    image = pattern[ids].sum(1) + 0.3 * torch.randn(16, 1, 8, 8, generator=gen)
    i, t, scale = model(image, ids)
    labels = torch.arange(16) + 16 * rank
    loss = (F.cross_entropy(scale * i @ Gather.apply(t).T, labels) + F.cross_entropy(scale * t @ Gather.apply(i).T, labels)) / 2
    opt.zero_grad()
    loss.backward()
    opt.step(); sched.step()
    with torch.no_grad(): net.logit_scale.clamp_(0, math.log(100))
    if rank == 0 and step % 40 == 0: print(f"step {step} loss {loss.item():.4f} scale {scale.item():.2f}")
flat = torch.cat([p.detach().flatten() for p in net.parameters()]); out = [torch.empty_like(flat) for _ in range(world)]
dist.all_gather(out, flat)
if rank == 0: print(f"200 steps, ranks' weights are equal {torch.equal(*out)}, last loss {loss.item():.4f}")
dist.barrier()
dist.destroy_process_group()
