"""Custom Functions with mark_dirty, mark_non_differentiable, once_differentiable, set_materialize_grads(False), needs_input_grad, non-tensor arguments.

Source: https://github.com/pytorch/pytorch/issues/58369
"""
# PRELUDE
from torch.autograd.function import once_differentiable
log = []
class A(torch.autograd.Function):
    @staticmethod
    def forward(ctx, x, w, mode):
        ctx.set_materialize_grads(False); ctx.save_for_backward(x, w); ctx.mode = mode
        idx = (x > 0).nonzero(); ctx.mark_non_differentiable(idx)
        return x * w, x + w, idx
    @staticmethod
    @once_differentiable
    def backward(ctx, g1, g2, g3):
        log.append((g1 is None, g2 is None, g3 is None, ctx.needs_input_grad, ctx.mode))
        x, w = ctx.saved_tensors
        return (g1 * w if g1 is not None else None), ((g1 * x).sum(0) if g1 is not None else None), None
class Inplace(torch.autograd.Function):
    @staticmethod
    def forward(ctx, x):
        ctx.mark_dirty(x); return x.mul_(2)
    @staticmethod
    def backward(ctx, g): return g * 2
class Net(nn.Module):
    def __init__(self):
        super().__init__(); self.w = nn.Parameter(torch.linspace(0.5, 1.5, 8)); self.l = nn.Linear(8, 4)
    def forward(self, x):
        a, b, i = A.apply(x, self.w, "m"); y = Inplace.apply(a.clone()); return self.l(y), b, i
torch.manual_seed(0); m = Net(); W(m)
opt = torch.optim.SGD(m.parameters(), 0.1)
for s in range(4):
    x = batch(s)[0].requires_grad_(s % 2 == 0)
    y, b, i = m(x)
    print(b.requires_grad, i.requires_grad, i.shape, type(y.grad_fn).__name__)
    opt.zero_grad(); y.square().mean().backward(); opt.step()
print(log, M(m))
