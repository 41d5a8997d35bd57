"""Fine-tuning: the backbone is frozen at first and unfrozen at step 30."""
import argparse, torch, torch.distributed as dist, torch.nn as nn, torch.nn.functional as F
from torch.nn.parallel import DistributedDataParallel as DDP
ap = argparse.ArgumentParser(); ap.add_argument("--healthy", action="store_true"); args = ap.parse_args()
dist.init_process_group("gloo"); rank, world = dist.get_rank(), dist.get_world_size()

class Classifier(nn.Module):
    def __init__(self):
        super().__init__()
        self.backbone = nn.Sequential(nn.Conv2d(1, 8, 3, padding=1), nn.ReLU(), nn.MaxPool2d(2), nn.Conv2d(8, 16, 3, padding=1), nn.ReLU())
        self.head = nn.Linear(16, 3)
    def forward(self, x):
        return self.head(self.backbone(x).mean((2, 3)))

torch.manual_seed(0)
net = Classifier()
net.backbone.requires_grad_(False)
model = DDP(net)
opt = torch.optim.SGD(net.head.parameters(), lr=0.1, momentum=0.9)
gen = torch.Generator().manual_seed(rank)

def batch(n=24):
    y = torch.randint(0, 3, (n,), generator=gen)
    x = 0.4 * torch.randn(n, 1, 12, 12, generator=gen)
    for i, c in enumerate(y):
        x[i, 0, 4 * c:4 * c + 4] += 1.0 if c != 1 else -1.0
    return x, y

for step in range(80):
    if step == 30:
        net.backbone.requires_grad_(True)
        opt.add_param_group({"params": net.backbone.parameters(), "lr": 0.02})
        if args.healthy:
            model = DDP(net)
    x, y = batch()
    loss = F.cross_entropy(model(x), y)
    opt.zero_grad()
    loss.backward()
    opt.step()
    if rank == 0 and step % 20 == 0:
        print(f"step {step} loss {loss.item():.4f}")
res = {}
for name, part in net.named_children():
    flat = torch.cat([p.detach().flatten() for p in part.parameters()])
    out = [torch.empty_like(flat) for _ in range(world)]
    dist.all_gather(out, flat)
    res[name] = torch.equal(out[0], out[1])
if rank == 0:
    print(f"ranks' weights are equal {res}")
dist.barrier()
dist.destroy_process_group()
