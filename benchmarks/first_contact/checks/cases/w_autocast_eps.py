"""L2 normalization under bf16 autocast (custom_fwd float32): backward omits the projection onto x when a norm is below eps... and uses the clamped norm squared: factor missing 1/n in the second term. Face recognition head."""
from _c import *
from torch.amp import custom_bwd, custom_fwd
class L2(Function):
    @staticmethod
    @custom_fwd(device_type="cpu", cast_inputs=torch.float32)
    def forward(ctx, x): n = x.norm(dim=-1, keepdim=True).clamp_min(1e-6); y = x / n; ctx.save_for_backward(y, n); return y
    @staticmethod
    @custom_bwd(device_type="cpu")
    def backward(ctx, g): y, n = ctx.saved_tensors; p = y * (g * y).sum(-1, keepdim=True); return g / n - p if BAD else (g - p) / n
class Face(nn.Module):
    def __init__(self): super().__init__(); self.f = nn.Sequential(nn.Linear(20, 32), nn.PReLU(), nn.Linear(32, 16)); self.W = nn.Parameter(torch.randn(10, 16))
    def forward(self, x): return 16 * L2.apply(self.f(x)) @ L2.apply(self.W).t()
truth(L2.apply, torch.randn(3, 4)) if not TRUTH else None
if TRUTH:
    x = torch.randn(3, 4, requires_grad=True); g = torch.randn(3, 4); L2.apply(x).backward(g); got = x.grad; z = x.detach().clone().requires_grad_(); F.normalize(z, dim=-1).backward(g); verdict(got, z.grad)
m = Face(); x = torch.randn(6, 24, 20); y = torch.randint(10, (6, 24)); opt = torch.optim.AdamW(m.parameters(), 1e-3)
for s in range(6):
    with torch.autocast("cpu", torch.bfloat16): loss = F.cross_entropy(m(x[s]).float(), y[s])
    opt.zero_grad(); loss.backward(); opt.step(); print(s, loss.item().hex())
