"""torch.library operator with register_autograd: opposite sign for the second of two operands. (PyTorch's register_autograd: pytorch/pytorch PR 123110)."""
from _c import *
@torch.library.custom_op("mylib::sqdiff", mutates_args=())
def sqdiff(a: torch.Tensor, b: torch.Tensor, s: float) -> torch.Tensor:
    return s * (a - b) ** 2
@sqdiff.register_fake
def _(a, b, s): return torch.empty_like(a)
def setup(ctx, inputs, output): ctx.a, ctx.b, ctx.s = inputs[0], inputs[1], inputs[2]
def backward(ctx, g):
    d = 2 * ctx.s * (ctx.a - ctx.b) * g; return d, (d if BAD else -d), None
sqdiff.register_autograd(backward, setup_context=setup)
class Siamese(nn.Module):
    def __init__(self): super().__init__(); self.f = nn.Linear(8, 16); self.g = nn.Linear(8, 16); self.o = nn.Linear(16, 1)
    def forward(self, a, b): return self.o(sqdiff(self.f(a), self.g(b), .5))
truth(lambda a, b: torch.ops.mylib.sqdiff(a, b, .5), torch.randn(3, 4), torch.randn(3, 4))
m = Siamese(); x = torch.randn(6, 2, 16, 8); y = torch.randn(6, 16, 1); fit(m, lambda s: F.mse_loss(m(x[s, 0], x[s, 1]), y[s]))
