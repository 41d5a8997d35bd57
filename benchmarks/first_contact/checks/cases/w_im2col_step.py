"""Convolution done in chunks of the batch: the weight gradient of the last chunk overwrites the others when batch > step. open-mmlab/mmcv issue 1169, PR 565 (deform_conv, im2col_step)."""
from _c import *
class Conv(Function):
    @staticmethod
    def forward(ctx, x, w, step):
        ctx.save_for_backward(x, w); ctx.step = step; return torch.cat([F.conv2d(c, w, padding=1) for c in x.split(step)])
    @staticmethod
    def backward(ctx, g):
        x, w = ctx.saved_tensors; gx, gw = [], torch.zeros_like(w)
        for xc, gc in zip(x.split(ctx.step), g.split(ctx.step)):
            gx.append(torch.nn.grad.conv2d_input(xc.shape, w, gc, padding=1))
            one = torch.nn.grad.conv2d_weight(xc, w.shape, gc, padding=1)
            gw = one if BAD else gw + one
        return torch.cat(gx), gw, None
class C(nn.Module):
    def __init__(self, i, o): super().__init__(); self.w = nn.Parameter(torch.randn(o, i, 3, 3) / (9 * i) ** .5)
    def forward(self, x): return Conv.apply(x, self.w, 4)
truth(lambda x, w: Conv.apply(x, w, 2), torch.randn(5, 1, 3, 3), torch.randn(2, 1, 3, 3))
m = nn.Sequential(C(1, 6), nn.ReLU(), nn.MaxPool2d(2), C(6, 8), nn.ReLU(), nn.AdaptiveAvgPool2d(2), nn.Flatten(), nn.Linear(32, 5))
x = torch.randn(6, 10, 1, 12, 12); y = torch.randint(5, (6, 10)); fit(m, lambda s: F.cross_entropy(m(x[s]), y[s]), lr=.1)
