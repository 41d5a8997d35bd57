"""bf16 autocast, a Function with custom_fwd/custom_bwd (no cast_inputs) and one with; right."""
from _c import *
from torch.amp import custom_bwd, custom_fwd
class Lin(Function):
    @staticmethod
    @custom_fwd(device_type="cpu")
    def forward(ctx, x, w): ctx.save_for_backward(x, w); return x @ w.t()
    @staticmethod
    @custom_bwd(device_type="cpu")
    def backward(ctx, g): x, w = ctx.saved_tensors; return g @ w, g.t() @ x
class Norm(Function):
    @staticmethod
    @custom_fwd(device_type="cpu", cast_inputs=torch.float32)
    def forward(ctx, x): n = x.norm(dim=-1, keepdim=True); y = x / n; ctx.save_for_backward(y, n); return y
    @staticmethod
    @custom_bwd(device_type="cpu")
    def backward(ctx, g): y, n = ctx.saved_tensors; return (g - y * (g * y).sum(-1, keepdim=True)) / n
class M(nn.Module):
    def __init__(self): super().__init__(); self.a = nn.Linear(10, 16); self.w = nn.Parameter(torch.randn(16, 16) * .2); self.b = nn.Linear(16, 3)
    def forward(self, x): return self.b(Norm.apply(Lin.apply(self.a(x), self.w)))
m = M(); x = torch.randn(6, 32, 10); y = torch.randint(3, (6, 32)); o = torch.optim.SGD(m.parameters(), .1)
for s in range(6):
    with torch.autocast("cpu", torch.bfloat16): l = F.cross_entropy(m(x[s]).float(), y[s])
    o.zero_grad(); l.backward(); o.step(); print(s, l.item().hex())
