"""Fused linear cross entropy, reduction='none': all is multiplied by grad_output[0]. linkedin/Liger-Kernel issue 968, PR 1298. Inside the model (HF style)."""
from _c import *
class FLCE(Function):
    @staticmethod
    def forward(ctx, h, W, t):
        z = h @ W.t(); p = z.softmax(-1); d = p.clone(); d[torch.arange(len(t)), t] -= 1
        ctx.save_for_backward(d @ W, d.t() @ h, d, h, W)
        return -z.log_softmax(-1)[torch.arange(len(t)), t]
    @staticmethod
    def backward(ctx, g):
        dh, dW, d, h, W = ctx.saved_tensors
        if BAD: return dh * g[0], dW * g[0], None
        return dh * g[:, None], (d * g[:, None]).t() @ h, None
class LM(nn.Module):
    def __init__(self):
        super().__init__(); self.e = nn.Embedding(32, 16); self.g = nn.GRU(16, 16, batch_first=True); self.W = nn.Parameter(torch.randn(32, 16) * .1)
    def forward(self, i, w):
        h = self.g(self.e(i[:, :-1]))[0].reshape(-1, 16)
        return (FLCE.apply(h, self.W, i[:, 1:].reshape(-1)) * w).mean()
truth(lambda h, W: FLCE.apply(h, W, torch.tensor([1, 0, 2])), torch.randn(3, 4), torch.randn(5, 4))
m = LM(); x = torch.randint(32, (6, 4, 9)); w = torch.rand(32)
fit(m, lambda s: m(x[s], w), lr=.1)
