"""A GAN with two DDP modules that alternate (broadcast_buffers off, no_sync for the generator's pass through the discriminator, batch norm in both); weights and buffers of both ranks."""
# PRELUDE
import torch.distributed as dist
from torch.nn.parallel import DistributedDataParallel as DDP

dist.init_process_group("gloo")
r = dist.get_rank()
g = DDP(nn.Sequential(nn.Linear(3, 16), nn.BatchNorm1d(16), nn.ReLU(), nn.Linear(16, 8)), broadcast_buffers=False)
d = DDP(net(2, 8, 16, 1), broadcast_buffers=False, gradient_as_bucket_view=True)
W(g), W(d)
og, od = torch.optim.Adam(g.parameters(), 1e-3), torch.optim.Adam(d.parameters(), 1e-3)
for s in range(4):
    x, _ = batch(10 * s + r)
    z = torch.randn(6, 3, generator=torch.Generator().manual_seed(s * 7 + r))
    fake = g(z)
    od.zero_grad()
    (F.softplus(-d(x)).mean() + F.softplus(d(fake.detach())).mean()).backward()
    od.step()
    og.zero_grad()
    with d.no_sync():
        F.softplus(-d(fake)).mean().backward()
    og.step()
with open(f"r{r}.txt", "w") as f:
    print(M(g.module), H(dict(d.module.state_dict())), R(), file=f)
dist.destroy_process_group()
