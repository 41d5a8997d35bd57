"""Own CheckpointFunction without the random state: another dropout mask in recomputation. openai/guided-diffusion issue 167."""
from _c import *
class CheckpointFunction(Function):
    @staticmethod
    def forward(ctx, run, n, *args):
        ctx.run, ctx.inp, ctx.par = run, list(args[:n]), list(args[n:]); ctx.rng = torch.get_rng_state()
        with torch.no_grad(): return run(*ctx.inp)
    @staticmethod
    def backward(ctx, g):
        inp = [x.detach().requires_grad_(True) for x in ctx.inp]
        keep = torch.get_rng_state()
        if not BAD: torch.set_rng_state(ctx.rng)
        with torch.enable_grad(): out = ctx.run(*[x.view_as(x) for x in inp])
        if not BAD: torch.set_rng_state(keep)
        return (None, None) + torch.autograd.grad(out, inp + ctx.par, g, allow_unused=True)
class Blk(nn.Module):
    def __init__(self): super().__init__(); self.f = nn.Sequential(nn.Linear(16, 32), nn.SiLU(), nn.Dropout(.3), nn.Linear(32, 16))
    def forward(self, x): return x + CheckpointFunction.apply(self.f, 1, x, *self.f.parameters())
m = nn.Sequential(nn.Linear(8, 16), Blk(), Blk(), nn.Linear(16, 2)); x = torch.randn(6, 16, 8); y = torch.randint(2, (6, 16))
if TRUTH:
    torch.manual_seed(5); m(x[0]).sum().backward(); got = m[1].f[0].weight.grad.clone(); m.zero_grad(); torch.manual_seed(5)
    h = m[0](x[0]); h = h + m[1].f(h); h = h + m[2].f(h); m[3](h).sum().backward(); verdict(got, m[1].f[0].weight.grad)
fit(m, lambda s: F.cross_entropy(m(x[s]), y[s]), lr=.1)
