# what: gradcheck and gradgradcheck of a custom autograd.Function in a watched module (double precision, fast mode, forward AD), then training
# PRELUDE
class Swish(torch.autograd.Function):
    @staticmethod
    def forward(x, b): return x * torch.sigmoid(b * x)
    @staticmethod
    def setup_context(ctx, i, o): ctx.save_for_backward(*i); ctx.save_for_forward(*i)
    @staticmethod
    def backward(ctx, g): x, b = ctx.saved_tensors; s = torch.sigmoid(b * x); return g * (s + b * x * s * (1 - s)), (g * x * x * s * (1 - s)).sum()
    @staticmethod
    def jvp(ctx, tx, tb): x, b = ctx.saved_tensors; s = torch.sigmoid(b * x); return tx * (s + b * x * s * (1 - s)) + tb * x * x * s * (1 - s)
class Act(nn.Module):
    def __init__(self): super().__init__(); self.b = nn.Parameter(torch.tensor(1.))
    def forward(self, x): return Swish.apply(x, self.b)
a = Act(); m = nn.Sequential(nn.Linear(8, 8), a, nn.Linear(8, 4)); W(m); d = a.double(); x = torch.randn(3, 2, dtype=torch.double, requires_grad=True)
print(torch.autograd.gradcheck(d, (x,), check_forward_ad=True), torch.autograd.gradcheck(d, (x,), fast_mode=True), torch.autograd.gradgradcheck(d, (x,)))
try: torch.autograd.gradcheck(lambda t: d(t).detach() * t, (x,))
except RuntimeError as e: print(str(e)[:60])
a.float(); opt = torch.optim.SGD(m.parameters(), lr=.1); print(train(m, opt, 4), M(m), R())
