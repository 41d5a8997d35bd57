# opts: --check again:every=1
# truth: bit 25 of one element of the weight's gradient (mm in a Function's backward), step 4
# source: Megatron-LM's LinearWithGradAccumulation, as a small Function; fault as arXiv 2102.11245
import flips as C, torch
from torch import nn
class Lin(torch.autograd.Function):
    @staticmethod
    def forward(ctx, x, w): ctx.save_for_backward(x, w); return x @ w.t()
    @staticmethod
    def backward(ctx, g):
        x, w = ctx.saved_tensors
        gx = g @ w
        gw = g.t() @ x  # FAULT
        if w.shape[0] == 24: C.poke(gw, 70, 25, what="wgrad fc2")
        return gx, gw
class L(nn.Module):
    def __init__(s, a, b): super().__init__(); s.weight = nn.Parameter(torch.randn(b, a) / a**.5)
    def forward(s, x): return Lin.apply(x, s.weight)
torch.manual_seed(0); m = nn.Sequential(L(16, 32), nn.ReLU(), L(32, 24), nn.Tanh(), L(24, 2)); o = torch.optim.AdamW(m.parameters(), 1e-3)
for C.STEP in range(8):
    m(torch.randn(8, 16)).square().mean().backward(); o.step(); o.zero_grad()
C.finish(m, o)
