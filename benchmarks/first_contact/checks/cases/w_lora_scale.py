"""Fused LoRA: dB forgets the scaling s. unsloth kernels/fast_lora.py style; MakazhanAlpamys/Soup#792."""
from _c import *
class LoRA(Function):
    @staticmethod
    def forward(ctx, x, W, A, B, s):
        ctx.save_for_backward(x, W, A, B); ctx.s = s
        return x @ W.t() + s * (x @ A.t()) @ B.t()
    @staticmethod
    def backward(ctx, g):
        x, W, A, B = ctx.saved_tensors; s = ctx.s
        g2, x2 = g.reshape(-1, g.shape[-1]), x.reshape(-1, x.shape[-1])
        dA = s * (g2 @ B).t() @ x2
        dB = (1 if BAD else s) * g2.t() @ (x2 @ A.t())
        return g @ W + s * (g @ B) @ A, None, dA, dB, None
class Lin(nn.Module):
    def __init__(self, i, o, r=4):
        super().__init__()
        self.W = nn.Parameter(torch.randn(o, i) / i**.5, requires_grad=False)
        self.A = nn.Parameter(torch.randn(r, i) * .1); self.B = nn.Parameter(torch.randn(o, r) * .1)
    def forward(self, x): return LoRA.apply(x, self.W, self.A, self.B, 0.25)
truth(lambda x, A, B: LoRA.apply(x, torch.ones(3, 4).double(), A, B, .25), torch.randn(5, 4), torch.randn(2, 4), torch.randn(3, 2))
m = nn.Sequential(nn.Embedding(50, 32), Lin(32, 64), nn.GELU(), Lin(64, 50))
x = torch.randint(50, (6, 8, 12))
fit(m, lambda s: F.cross_entropy(m(x[s]).reshape(-1, 50), x[s].roll(-1, 1).reshape(-1)))
