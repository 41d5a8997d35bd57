"""Fused LSTM pointwise: forget gate's gradient multiplies the new cell instead of the old one. (arithmetic of the LSTM; a classic of hand-written kernels). Two outputs."""
from _c import *
class Cell(Function):
    @staticmethod
    def forward(ctx, gates, c):
        i, f, g, o = gates.chunk(4, -1); i, f, g, o = i.sigmoid(), f.sigmoid(), g.tanh(), o.sigmoid(); c1 = f * c + i * g; ctx.save_for_backward(i, f, g, o, c, c1); return o * c1.tanh(), c1
    @staticmethod
    def backward(ctx, gh, gc):
        i, f, g, o, c, c1 = ctx.saved_tensors; t = c1.tanh(); d = gc + gh * o * (1 - t * t)
        return torch.cat((d * g * i * (1 - i), d * (c1 if BAD else c) * f * (1 - f), d * i * (1 - g * g), gh * t * o * (1 - o)), -1), d * f
class LSTM(nn.Module):
    def __init__(self, n, h): super().__init__(); self.x = nn.Linear(n, 4 * h); self.h = nn.Linear(h, 4 * h); self.o = nn.Linear(h, n)
    def forward(self, x):
        B, T, _ = x.shape; h = c = torch.zeros(B, self.o.in_features); out = []
        for t in range(T): h, c = Cell.apply(self.x(x[:, t]) + self.h(h), c); out.append(h)
        return self.o(torch.stack(out, 1))
truth(Cell.apply, torch.randn(2, 12), torch.randn(2, 3))
m = LSTM(4, 10); x = torch.randn(6, 8, 7, 4); fit(m, lambda s: F.mse_loss(m(x[s]), x[s].cumsum(1)), lr=.1)
