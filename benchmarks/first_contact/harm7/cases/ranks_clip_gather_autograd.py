"""CLIP's loss over features gathered from two ranks (autograd's all_gather, a gather whose local part is put back, SigLIP's neighbour exchange) under DDP must keep losses, gradients and logit scales."""
# PRELUDE
import torch.distributed as dist
import torch.distributed.nn as dnn
from torch.nn.parallel import DistributedDataParallel as DDP

dist.init_process_group("gloo")
rank = dist.get_rank()


class Clip(nn.Module):
    def __init__(self):
        super().__init__()
        self.a, self.b = net(1), net(2)
        self.scale, self.bias = nn.Parameter(torch.tensor(2.0)), nn.Parameter(torch.tensor(-1.0))

    def forward(self, x, y):
        return F.normalize(self.a(x), dim=-1), F.normalize(self.b(y), dim=-1), self.scale.exp(), self.bias


class Gather(torch.autograd.Function):
    @staticmethod
    def forward(ctx, t):
        o = [torch.zeros_like(t) for _ in range(2)]
        dist.all_gather(o, t.contiguous())
        return tuple(o)

    @staticmethod
    def backward(ctx, *g):
        a = torch.stack(g)
        dist.all_reduce(a)
        return a[dist.get_rank()]


m = DDP(Clip())
W(m)
opt = torch.optim.AdamW(m.parameters(), 1e-2)
out = []
for s in range(6):
    x, _ = batch(20 * s + rank)
    a, b, sc, bias = m(x, x.flip(1))
    kind = s % 3
    if kind == 0:
        fa, fb = torch.cat(dnn.all_gather(a)), torch.cat(dnn.all_gather(b))
    elif kind == 1:
        fa, fb = torch.cat(Gather.apply(a)), torch.cat(Gather.apply(b))
    else:
        ga, gb = ([torch.zeros_like(a) for _ in range(2)] for _ in range(2))
        dist.all_gather(ga, a)
        dist.all_gather(gb, b)
        ga[rank], gb[rank] = a, b
        fa, fb = torch.cat(ga), torch.cat(gb)
    lab = torch.arange(6) + 6 * rank
    la, lb = sc * a @ fb.T, sc * b @ fa.T
    loss = (F.cross_entropy(la, lab) + F.cross_entropy(lb, lab)) / 2
    loss = loss - F.logsigmoid((2 * torch.eye(6) - 1) * (sc * a @ b.T + bias)).sum() / 60
    other = dnn.functional.all_reduce(b.mean(0))
    loss = loss + 0.01 * (a.mean(0) * other).sum()
    opt.zero_grad()
    loss.backward()
    opt.step()
    with torch.no_grad():
        m.module.scale.clamp_(0, 4.6052)
        acc = (la.argmax(1) == lab).float().mean()
        dist.all_reduce(acc)
        e = m.module(x, x)
    out.append(f"{s} {float(loss.detach()).hex()} {M(m)} {H(fa)} {acc.item()} {H(e)} {m.module.scale._version} {fa.grad_fn.name()} {R()}")
both = [None, None]
dist.all_gather_object(both, out)
if rank == 0:
    for r, lines in enumerate(both):
        for l in lines:
            print(r, l)
dist.destroy_process_group()
