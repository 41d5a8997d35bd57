"""Differentiable collectives in a model: torch.distributed.nn.functional's all_gather, reduce_scatter-like all_to_all, broadcast, and _functional_collectives' all_reduce, all_gather_tensor_autograd and all_to_all_single_autograd with waits; SyncBatchNorm by hand; CLIP's gathered loss; gradients on each rank."""
# PRELUDE
import warnings
import torch.distributed as dist
import torch.distributed._functional_collectives as fc
import torch.distributed.nn.functional as df

warnings.simplefilter("ignore")
dist.init_process_group("gloo")
r = dist.get_rank()
say = lambda *a: open(f"rank{r}.txt", "a").write(" ".join(map(str, a)) + "\n")


class SyncNorm(nn.Module):
    def __init__(self, n):
        super().__init__()
        self.g = nn.Parameter(torch.ones(n))

    def forward(self, x):
        s = df.all_reduce(torch.stack([x.sum(0), x.square().sum(0)]))
        n = len(x) * 2
        mean, var = s[0] / n, s[1] / n - (s[0] / n) ** 2
        return (x - mean) / (var + 1e-5).sqrt() * self.g


class Net(nn.Module):
    def __init__(self):
        super().__init__()
        torch.manual_seed(5)
        self.a, self.n, self.b = nn.Linear(8, 16), SyncNorm(16), nn.Linear(16, 6)

    def forward(self, x):
        h = self.n(self.a(x))
        h = fc.all_to_all_single_autograd(h.contiguous(), [3, 3], [3, 3], dist.group.WORLD)
        h = fc.wait_tensor(h) if hasattr(fc, "wait_tensor") else h
        h = fc.all_to_all_single_autograd((h * 1.5).contiguous(), [3, 3], [3, 3], dist.group.WORLD)
        return F.normalize(self.b(h), dim=-1)


m, text = Net(), Net()
W(m)
W(text)
opt = torch.optim.SGD([*m.parameters(), *text.parameters()], 0.05)
for s in range(5):
    x, y = batch(2 * s + r)[0], batch(100 + 2 * s + r)[0]
    opt.zero_grad()
    i, t = m(x), text(y)
    ai = torch.cat(df.all_gather(i))
    at = fc.all_gather_tensor_autograd(t, 0, dist.group.WORLD)
    at = at * 1
    labels = torch.arange(6) + 6 * r
    loss = (F.cross_entropy(i @ at.t() / 0.2, labels) + F.cross_entropy(t @ ai.t() / 0.2, labels)) / 2
    loss.backward()
    grads = [p.grad for p in (*m.parameters(), *text.parameters())]
    flat = torch.cat([g.flatten() for g in grads])
    dist.all_reduce(flat)
    for g, f in zip(grads, flat.split([g.numel() for g in grads])):
        g.copy_(f.view_as(g) / 2)
    opt.step()
    with torch.no_grad():
        total = fc.all_reduce(loss.detach(), "sum", dist.group.WORLD) + 0
    say(s, loss.item().hex(), total.item().hex(), M(m), M(text))
say(R())
dist.barrier()
dist.destroy_process_group()
