"""LSQ quantizer in one Function: gradient of x masked straight-through, of the step by LSQ's rule with the scale 1/sqrt(n Qp). zhutmost/lsq-net issue 23."""
from _c import *
class LSQ(Function):
    @staticmethod
    def forward(ctx, x, s, Qn, Qp): g = 1 / (x.numel() * Qp) ** .5; ctx.save_for_backward(x, s); ctx.o = g, Qn, Qp; return (x / s).clamp(Qn, Qp).round() * s
    @staticmethod
    def backward(ctx, go):
        x, s = ctx.saved_tensors; g, Qn, Qp = ctx.o; q = x / s; lo, hi = (q < Qn).float(), (q > Qp).float(); mid = 1 - lo - hi
        return go * mid, ((lo * Qn + hi * Qp + mid * (q.round() - q)) * go * g).sum().reshape(s.shape), None, None
class QC(nn.Conv2d):
    def __init__(self, *a): super().__init__(*a); self.s = nn.Parameter(torch.tensor([.02])); self.sa = nn.Parameter(torch.tensor([.1]))
    def forward(self, x): return F.conv2d(LSQ.apply(x, self.sa, 0 if x.min() >= 0 else -8, 7), LSQ.apply(self.weight, self.s, -8, 7), self.bias)
m = nn.Sequential(QC(3, 8, 3), nn.ReLU(), QC(8, 8, 3), nn.ReLU(), nn.Flatten(), nn.Linear(8 * 36, 3)); x = torch.randn(6, 8, 3, 10, 10); y = torch.randint(3, (6, 8)); fit(m, lambda s: F.cross_entropy(m(x[s]), y[s]))
