"""Glow's 1x1 convolution: logdet's gradient is inv(W) instead of inv(W)^T (right for symmetric W). Arithmetic."""
from _c import *
class LogDet(Function):
    @staticmethod
    def forward(ctx, W): ctx.save_for_backward(W); return torch.slogdet(W)[1]
    @staticmethod
    def backward(ctx, g): W, = ctx.saved_tensors; i = torch.linalg.inv(W); return g * (i if BAD else i.t())
class Flow(nn.Module):
    def __init__(self, d=6, n=3): super().__init__(); self.W = nn.ParameterList(torch.linalg.qr(torch.randn(d, d))[0] + .1 * torch.randn(d, d) for _ in range(n)); self.b = nn.ParameterList(torch.zeros(d) for _ in range(n))
    def forward(self, x):
        ld = 0.
        for W, b in zip(self.W, self.b): x = x @ W.t() + b; ld = ld + LogDet.apply(W); y = torch.asinh(x); ld = ld - .5 * torch.log1p(x * x).sum(-1); x = y
        return x, ld
truth(LogDet.apply, torch.randn(4, 4))
m = Flow(); x = torch.randn(6, 64, 6) * 2 + 1
def nll(s): z, ld = m(x[s]); return (.5 * z.pow(2).sum(-1) - ld).mean()
fit(m, nll)
