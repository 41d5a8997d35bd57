"""Focal loss in the model: backward ignores grad_output; the loss is then scaled (0.3 of it in a sum). Cf. Liger-Kernel issue 678/968 (grad_output not applied), deepseek-ai/DeepSeek-MoE issue 17."""
from _c import *
class Focal(Function):
    @staticmethod
    def forward(ctx, z, t):
        p = z.sigmoid(); pt = torch.where(t > 0, p, 1 - p); ctx.save_for_backward(p, pt, t); return (-(1 - pt) ** 2 * pt.log()).mean()
    @staticmethod
    def backward(ctx, g):
        p, pt, t = ctx.saved_tensors; d = 2 * (1 - pt) * pt.log() - (1 - pt) ** 2 / pt; s = torch.where(t > 0, 1., -1.) * p * (1 - p)
        d = d * s / p.numel(); return (d if BAD else d * g), None
class Det(nn.Module):
    def __init__(self): super().__init__(); self.b = nn.Sequential(nn.Conv2d(3, 8, 3, padding=1), nn.ReLU()); self.c = nn.Conv2d(8, 1, 1); self.r = nn.Conv2d(8, 4, 1)
    def forward(self, x, t, box): f = self.b(x); return F.smooth_l1_loss(self.r(f), box) + .3 * Focal.apply(self.c(f), t)
truth(lambda z: .3 * Focal.apply(z, torch.tensor([1., 0, 1, 0])), torch.randn(4))
m = Det(); x = torch.randn(6, 4, 3, 8, 8); t = (torch.rand(6, 4, 1, 8, 8) > .8).float(); b = torch.randn(6, 4, 4, 8, 8); fit(m, lambda s: m(x[s], t[s], b[s]), lr=.1)
