"""Autocast in bfloat16, nested and switched off inside, with custom_fwd, cached casts, and a float64 island; dtypes of outputs.

Source: https://github.com/pytorch/pytorch/issues/136270
"""
# PRELUDE
from torch.amp import custom_bwd, custom_fwd
class Fn(torch.autograd.Function):
    @staticmethod
    @custom_fwd(device_type="cpu", cast_inputs=torch.float32)
    def forward(ctx, x): print("fn", x.dtype, torch.is_autocast_enabled("cpu")); return x.sin()
    @staticmethod
    @custom_bwd(device_type="cpu")
    def backward(ctx, g): return g
class Net(nn.Module):
    def __init__(self): super().__init__(); self.a, self.b, self.c, self.n = nn.Linear(8, 8), nn.Linear(8, 4), nn.Linear(8, 8), nn.LayerNorm(8)
    def forward(self, x):
        h = self.n(self.a(x))
        with torch.autocast("cpu", enabled=False):
            h = self.a(h.float())
        with torch.autocast("cpu", dtype=torch.float16):
            h2 = self.c(h)
        return self.b(Fn.apply(h)) , h2
torch.manual_seed(0); m = Net(); W(m)
opt = torch.optim.Adam(m.parameters(), 1e-2)
for s in range(3):
    x, y = batch(s)
    with torch.autocast("cpu", dtype=torch.bfloat16):
        o, h2 = m(x); loss = F.mse_loss(o.float(), y) + h2.float().mean()
    print(o.dtype, h2.dtype, torch.is_autocast_cache_enabled(), torch.get_autocast_dtype("cpu"))
    opt.zero_grad(); loss.backward(); opt.step(); print(float(loss.detach()).hex())
print(M(m), R())
