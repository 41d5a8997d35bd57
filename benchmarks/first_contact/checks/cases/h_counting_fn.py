"""Function whose forward counts and prints its calls in globals (a log of the script): right; the output must not change under the check."""
from _c import *
calls = {"f": 0, "b": 0}
class Sq(Function):
    @staticmethod
    def forward(ctx, x): calls["f"] += 1; print("forward", calls["f"]); ctx.save_for_backward(x); return x * x
    @staticmethod
    def backward(ctx, g): calls["b"] += 1; print("backward", calls["b"]); x, = ctx.saved_tensors; return 2 * x * g
class A(nn.Module):
    def forward(self, x): return Sq.apply(x)
m = nn.Sequential(nn.Linear(6, 12), A(), nn.Linear(12, 2)); x = torch.randn(6, 16, 6); y = torch.randint(2, (6, 16)); fit(m, lambda s: F.cross_entropy(m(x[s]), y[s]), lr=.05); print(calls)
