"""Expert parallelism: tokens sent by all_to_all_single with uneven splits that change every step (also zero tokens), functional collectives with gradients, one expert per rank, data-parallel router."""
# PRELUDE
import torch.distributed as dist
from torch.distributed._functional_collectives import all_to_all_single_autograd

dist.init_process_group("gloo")
r = dist.get_rank()
torch.manual_seed(1)
router = nn.Linear(8, 2)
torch.manual_seed(5 + r)
expert = nn.Sequential(nn.Linear(8, 16), nn.GELU(), nn.Linear(16, 8))


class Moe(nn.Module):
    def __init__(self):
        super().__init__()
        self.router, self.expert = router, expert

    def forward(self, x):
        p = self.router(x).softmax(-1)
        w, i = p.max(-1)
        order = i.argsort(stable=True)
        send = torch.bincount(i, minlength=2)
        recv = torch.empty_like(send)
        dist.all_to_all_single(recv, send)
        y = all_to_all_single_autograd(x[order], recv.tolist(), send.tolist(), dist.group.WORLD)
        y = self.expert(y)
        y = all_to_all_single_autograd(y, send.tolist(), recv.tolist(), dist.group.WORLD)
        z = torch.zeros_like(x).index_copy(0, order, y)
        return z * w[:, None], send.tolist()


m = Moe()
W(m)
opt = torch.optim.SGD(m.parameters(), 0.05)
out = []
for s in range(5):
    x = torch.randn(7 + r, 8, generator=torch.Generator().manual_seed(10 * s + r)) + (3 if s == 2 else 0)
    y, n = m(x)
    loss = (y - x).square().mean()
    opt.zero_grad()
    loss.backward()
    for p in router.parameters():
        dist.all_reduce(p.grad)
    opt.step()
    out.append((loss.item().hex(), n))
with open(f"r{r}.txt", "w") as f:
    print(out, M(m), file=f)
dist.destroy_process_group()
