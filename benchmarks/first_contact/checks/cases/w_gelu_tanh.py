"""GELU: forward is the tanh approximation, backward the exact erf one: about 0.1% off. kulinseth/pytorch PR 284 (tanh approximate backward missing). In a HF ViT-like block."""
from _c import *
class G(Function):
    @staticmethod
    def forward(ctx, x): ctx.save_for_backward(x); return F.gelu(x, approximate="tanh")
    @staticmethod
    def backward(ctx, g):
        x, = ctx.saved_tensors
        with torch.enable_grad():
            x = x.detach().requires_grad_(); y = F.gelu(x, approximate="none" if BAD else "tanh")
        return torch.autograd.grad(y, x, g)[0]
class Act(nn.Module):
    def forward(self, x): return G.apply(x)
truth(G.apply, torch.randn(8) * 2)
m = nn.Sequential(nn.Linear(12, 48), Act(), nn.LayerNorm(48), nn.Linear(48, 48), Act(), nn.Linear(48, 4)); x = torch.randn(6, 32, 12); y = torch.randint(4, (6, 32))
fit(m, lambda s: F.cross_entropy(m(x[s]), y[s]), lr=.1)
