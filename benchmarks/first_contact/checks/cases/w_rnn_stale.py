"""RNN over time in one Function: a stale hidden state (h_t instead of h_{t-1}) meets the recurrent weight's gradient (saved tensor of the wrong step)."""
from _c import *
class RNN(Function):
    @staticmethod
    def forward(ctx, x, W):
        h = torch.zeros_like(x[:, 0]); hs = [h]
        for t in range(x.shape[1]): h = torch.tanh(x[:, t] + h @ W.t()); hs.append(h)
        ctx.save_for_backward(W, *hs); return torch.stack(hs[1:], 1)
    @staticmethod
    def backward(ctx, g):
        W, *hs = ctx.saved_tensors; gx = torch.empty_like(g); gW = torch.zeros_like(W); gh = torch.zeros_like(hs[0])
        for t in reversed(range(g.shape[1])):
            a = (g[:, t] + gh) * (1 - hs[t + 1] ** 2); gx[:, t] = a; gW += a.t() @ hs[t + 1 if BAD else t]; gh = a @ W
        return gx, gW
class M(nn.Module):
    def __init__(self): super().__init__(); self.i = nn.Linear(5, 12); self.W = nn.Parameter(torch.randn(12, 12) * .2); self.o = nn.Linear(12, 1)
    def forward(self, x): return self.o(RNN.apply(self.i(x), self.W)[:, -1])
truth(RNN.apply, torch.randn(2, 3, 4), torch.randn(4, 4))
m = M(); x = torch.randn(6, 16, 10, 5); y = x[:, :, :, 0].sum(2, keepdim=True); fit(m, lambda s: F.mse_loss(m(x[s]), y[s]), lr=.05)
