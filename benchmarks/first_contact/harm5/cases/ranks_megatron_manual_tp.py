"""Megatron's own autograd functions (copy, reduce, gather, scatter to the tensor-parallel region), vocabulary-parallel cross entropy, RNG tracker forked per rank, gradients of layer norms reduced by hand."""
# PRELUDE
import torch.distributed as dist
dist.init_process_group("gloo")
r, w = dist.get_rank(), dist.get_world_size()
class Copy(torch.autograd.Function):
    @staticmethod
    def forward(ctx, x): return x
    @staticmethod
    def backward(ctx, g):
        g = g.contiguous()
        dist.all_reduce(g)
        return g
class Reduce(torch.autograd.Function):
    @staticmethod
    def forward(ctx, x):
        dist.all_reduce(x)
        return x
    @staticmethod
    def backward(ctx, g): return g
class VocabCE(torch.autograd.Function):
    @staticmethod
    def forward(ctx, lg, t):
        mx = lg.max(-1)[0]
        dist.all_reduce(mx, dist.ReduceOp.MAX)
        lg = lg - mx[:, None]
        n = lg.shape[-1]
        mask = (t < r * n) | (t >= (r + 1) * n)
        tt = (t - r * n).masked_fill(mask, 0)
        pred = lg.gather(1, tt[:, None])[:, 0].masked_fill(mask, 0.0)
        dist.all_reduce(pred)
        e = lg.exp_()
        s = e.sum(-1)
        dist.all_reduce(s)
        e.div_(s[:, None])
        ctx.save_for_backward(e, mask, tt)
        return s.log() - pred
    @staticmethod
    def backward(ctx, g):
        e, mask, tt = ctx.saved_tensors
        e = e.clone()
        e[torch.arange(len(tt)), tt] -= 1.0 - mask.float()
        return e * g[:, None], None
class Layer(nn.Module):
    def __init__(self):
        super().__init__()
        self.ln = nn.LayerNorm(8)
        self.up, self.down = nn.Linear(8, 8), nn.Linear(8, 8, bias=False)
        self.b = nn.Parameter(torch.zeros(8))
    def forward(self, x):
        h = F.gelu(self.up(Copy.apply(self.ln(x))))
        st = torch.get_rng_state()
        torch.manual_seed(100 + r)
        h = F.dropout(h, 0.1, self.training)
        torch.set_rng_state(st)
        return x + Reduce.apply(self.down(h)) + self.b
class GPT(nn.Module):
    def __init__(self):
        super().__init__()
        self.layers = nn.ModuleList(Layer() for _ in range(2))
        self.out = nn.Linear(8, 6, bias=False)
    def forward(self, x, t):
        for l in self.layers:
            x = l(x)
        return VocabCE.apply(self.out(Copy.apply(x)), t).mean()
torch.manual_seed(r)
m = GPT()
with torch.no_grad():
    for n, p in m.named_parameters():
        if ".ln" in n or n.endswith(".b"):
            dist.broadcast(p, 0)
W(m)
opt = torch.optim.AdamW(m.parameters(), 1e-2)
for s in range(5):
    g = torch.Generator().manual_seed(s)
    loss = m(torch.randn(5, 8, generator=g), torch.randint(0, 12, (5,), generator=g))
    opt.zero_grad()
    loss.backward()
    sq = sum(p.grad.square().sum() for n, p in m.named_parameters() if ".ln" not in n and not n.endswith(".b"))
    dist.all_reduce(sq)
    for p in m.parameters():
        p.grad.mul_((1.0 / (sq.sqrt() + 1e-6)).clamp(max=1.0))
    opt.step()
out = [None] * w
dist.all_gather_object(out, (float(loss.detach()).hex(), M(m), R()))
if r == 0:
    print(out)
dist.destroy_process_group()
