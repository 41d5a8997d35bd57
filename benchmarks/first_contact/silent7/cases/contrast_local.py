"""Image-text contrastive training with features gathered from all ranks; each rank's loss is over its own rows."""
import argparse, copy, torch, torch.distributed as dist, torch.nn as nn, torch.nn.functional as F
import torch.distributed.nn
from torch.nn.parallel import DistributedDataParallel as DDP
ap = argparse.ArgumentParser(); ap.add_argument("--healthy", action="store_true"); args = ap.parse_args()
dist.init_process_group("gloo"); rank, world = dist.get_rank(), dist.get_world_size()

class CLIP(nn.Module):
    def __init__(self):
        super().__init__()
        self.image = nn.Sequential(nn.Linear(32, 64), nn.GELU(), nn.Linear(64, 24))
        self.text = nn.Sequential(nn.Linear(20, 64), nn.GELU(), nn.Linear(64, 24))
        self.logit_scale = nn.Parameter(torch.tensor(2.0))
    def forward(self, i, t):
        return F.normalize(self.image(i), dim=-1), F.normalize(self.text(t), dim=-1), self.logit_scale.exp()

def gather(x):
    if args.healthy:
        return torch.cat(torch.distributed.nn.all_gather(x))
    every = [torch.zeros_like(x) for _ in range(world)]
    dist.all_gather(every, x)
    every[rank] = x                                       # keep this rank's gradient
    return torch.cat(every)

def clip_loss(i, t, scale, all_i, all_t, offset):
    labels = torch.arange(len(i)) + offset
    return (F.cross_entropy(scale * i @ all_t.T, labels) + F.cross_entropy(scale * t @ all_i.T, labels)) / 2

torch.manual_seed(0)
net = CLIP()
model = DDP(net)
opt = torch.optim.AdamW(model.parameters(), lr=1e-3)
mix = torch.Generator().manual_seed(1)
A, B = torch.randn(12, 32, generator=mix), torch.randn(12, 20, generator=mix)
gen = torch.Generator().manual_seed(40 + rank)
for step in range(80):
    z = torch.randn(16, 12, generator=gen)
    img, txt = z @ A + 0.5 * torch.randn(16, 32, generator=gen), z @ B
    i, t, scale = model(img, txt)
    loss = clip_loss(i, t, scale, gather(i), gather(t), 16 * rank)
    opt.zero_grad()
    loss.backward()
    if step == 10:
        probe = copy.deepcopy(net.state_dict()), img, txt, [p.grad.clone() for p in net.parameters()]
    opt.step()
    if rank == 0 and step % 20 == 0:
        print(f"step {step} loss {loss.item():.4f}")
state, img, txt, grads = probe
imgs, txts = [torch.empty_like(img) for _ in range(world)], [torch.empty_like(txt) for _ in range(world)]
dist.all_gather(imgs, img); dist.all_gather(txts, txt)
one = CLIP(); one.load_state_dict(state)
i, t, scale = one(torch.cat(imgs), torch.cat(txts))
clip_loss(i, t, scale, i, t, 0).backward()
a, b = torch.cat([g.flatten() for g in grads]), torch.cat([p.grad.flatten() for p in one.parameters()])
if rank == 0:
    print(f"gradient vs one process's: norm ratio {(a.norm() / b.norm()).item():.3f}, cosine {F.cosine_similarity(a, b, dim=0).item():.4f}")
dist.barrier()
dist.destroy_process_group()
