"""FFT convolution (Hyena-like): the filter's gradient lacks the complex conjugate. (arithmetic: correlation, not convolution)"""
from _c import *
class FFTConv(Function):
    @staticmethod
    def forward(ctx, x, k):
        n = 2 * x.shape[-1]; X, K = torch.fft.rfft(x, n), torch.fft.rfft(k, n); ctx.save_for_backward(X, K); ctx.n = n; return torch.fft.irfft(X * K, n)[..., : n // 2]
    @staticmethod
    def backward(ctx, g):
        X, K = ctx.saved_tensors; n = ctx.n; G = torch.fft.rfft(g, n)
        gx = torch.fft.irfft(G * K.conj(), n)[..., : n // 2]; gk = torch.fft.irfft(G * (X if BAD else X.conj()), n)[..., : n // 2].sum(0); return gx, gk
class Hy(nn.Module):
    def __init__(self, d, T): super().__init__(); self.k = nn.Parameter(torch.randn(d, T) / T); self.i = nn.Linear(d, 2 * d); self.o = nn.Linear(d, d)
    def forward(self, x): a, b = self.i(x).chunk(2, -1); return x + self.o(FFTConv.apply(a.transpose(1, 2), self.k).transpose(1, 2) * b)
truth(FFTConv.apply, torch.randn(2, 3, 4), torch.randn(3, 4))
m = nn.Sequential(nn.Embedding(20, 12), Hy(12, 10), Hy(12, 10), nn.Linear(12, 20)); x = torch.randint(20, (6, 4, 10)); fit(m, lambda s: F.cross_entropy(m(x[s]).reshape(-1, 20), x[s].roll(1, 1).reshape(-1)), lr=.1)
