"""Learned clip (PACT without rounding): alpha's gradient counts the elements below the clip instead of those above. Cf. microsoft/nni PR 3160 (wrong mask in the quantizer's gradient)."""
from _c import *
class Clip(Function):
    @staticmethod
    def forward(ctx, x, a): ctx.save_for_backward(x, a); return torch.minimum(x.clamp_min(0), a)
    @staticmethod
    def backward(ctx, g):
        x, a = ctx.saved_tensors; inside = ((x > 0) & (x < a)).to(g); above = (x >= a).to(g)
        return g * inside, (g * (inside if BAD else above)).sum()
class Pact(nn.Module):
    def __init__(self): super().__init__(); self.a = nn.Parameter(torch.tensor(.8))
    def forward(self, x): return Clip.apply(x, self.a)
truth(Clip.apply, torch.tensor([-.5, .1, .33, .9, 1.4]), torch.tensor(.8))
m = nn.Sequential(nn.Conv2d(3, 8, 3), Pact(), nn.Conv2d(8, 8, 3), Pact(), nn.Flatten(), nn.Linear(8 * 36, 4)); x = torch.randn(6, 6, 3, 10, 10); y = torch.randint(4, (6, 6))
fit(m, lambda s: F.cross_entropy(m(x[s]), y[s]), lr=.05)
