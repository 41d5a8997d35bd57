"""One of two DDP ranks meets a batch in evaluation that gives nan (an empty bag) through a model whose forward counts, draws and enqueues, and reduces metrics by hand: states, random numbers and both ranks' metrics must stay the same."""
# PRELUDE
import torch.distributed as dist
from torch.nn.parallel import DistributedDataParallel as DDP

dist.init_process_group("gloo")
rank = dist.get_rank()


class Bag(nn.Module):
    def __init__(self):
        super().__init__()
        self.f, self.a = net(1), nn.Linear(8, 1)
        self.register_buffer("center", torch.zeros(4))
        self.calls, self.sizes, self.it = 0, [], iter(range(10**6))

    def forward(self, x, keep):
        self.calls += 1
        self.sizes.append((next(self.it), int(keep.sum())))
        w = self.a(x).masked_fill(~keep[..., None], float("-inf")).softmax(1)
        z = (self.f(x) * w).sum(1)
        if self.training:
            z = torch.where(keep.any(1)[:, None], z, torch.zeros(()))
        self.center.mul_(0.9).add_(0.1 * z.detach().nan_to_num().mean(0))
        return z - self.center + torch.randn(4) * 0.01


torch.manual_seed(7)
model = Bag()
m = DDP(model, broadcast_buffers=False)
W(m)
torch.manual_seed(rank)
opt = torch.optim.SGD(m.parameters(), 0.05)
out = []
for s in range(5):
    g = torch.Generator().manual_seed(10 * s + rank)
    x, y = torch.randn(3, 5, 8, generator=g), torch.randn(3, 4, generator=g)
    keep = torch.rand(3, 5, generator=g) > 0.3
    loss = F.mse_loss(m(x, keep), y)
    opt.zero_grad()
    loss.backward()
    opt.step()
    m.eval()
    k = keep.clone()
    if rank == 1 and s % 2:
        k[0] = False
    with torch.no_grad():
        e = model(x, k)
        err = (e - y).square().mean(1)
        good = err.isfinite()
        t = torch.stack([err[good].sum(), good.sum().float()])
        dist.all_reduce(t)
        worst = err.clone()
        dist.all_reduce(worst, dist.ReduceOp.MAX)
    m.train()
    out.append(f"{s} {float(loss.detach()).hex()} {M(m)} {model.calls} {model.sizes[-2:]} {H(t)} {good.tolist()} {H(worst.isnan())} {R()}")
both = [None, None]
dist.all_gather_object(both, out)
if rank == 0:
    for r, lines in enumerate(both):
        for l in lines:
            print(r, l)
dist.destroy_process_group()
