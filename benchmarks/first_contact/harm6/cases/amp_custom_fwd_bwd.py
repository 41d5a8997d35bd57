"""Functions with torch.amp.custom_fwd and custom_bwd under bfloat16 autocast on the CPU, with cast_inputs, nested disabled regions, the cache cleared by hand, autocast entered by _enter_autocast, double backward through them."""
# PRELUDE
from torch.amp import custom_bwd, custom_fwd

seen = []


class Scaled(torch.autograd.Function):
    @staticmethod
    @custom_fwd(device_type="cpu")
    def forward(ctx, x, w):
        seen.append(("fwd", x.dtype, torch.is_autocast_enabled("cpu")))
        ctx.save_for_backward(x, w)
        return x @ w

    @staticmethod
    @custom_bwd(device_type="cpu")
    def backward(ctx, g):
        x, w = ctx.saved_tensors
        seen.append(("bwd", g.dtype, torch.is_autocast_enabled("cpu"), torch.get_autocast_dtype("cpu")))
        return g @ w.t().to(g.dtype), (x.t().to(g.dtype) @ g).to(w.dtype)


class Exact(torch.autograd.Function):
    @staticmethod
    @custom_fwd(device_type="cpu", cast_inputs=torch.float32)
    def forward(ctx, x):
        seen.append(("exact", x.dtype, torch.is_autocast_enabled("cpu")))
        ctx.save_for_backward(x)
        return x.exp()

    @staticmethod
    @custom_bwd(device_type="cpu")
    def backward(ctx, g):
        (x,) = ctx.saved_tensors
        return g * x.exp()


class Net(nn.Module):
    def __init__(self):
        super().__init__()
        torch.manual_seed(1)
        self.a = nn.Linear(8, 8)
        self.w = nn.Parameter(torch.randn(8, 8) * 0.2)
        self.o = nn.Linear(8, 4)

    def forward(self, x):
        h = Scaled.apply(self.a(x), self.w)
        h = Exact.apply(-h.abs())
        with torch.autocast("cpu", enabled=False):
            h = h.float() / (1 + h.float().sum(-1, keepdim=True))
        seen.append(h.dtype)
        return self.o(h)


m = Net()
W(m)
opt = torch.optim.AdamW(m.parameters(), 1e-2)
for s in range(5):
    x, y = batch(s)
    opt.zero_grad()
    with torch.autocast("cpu", torch.bfloat16, cache_enabled=s % 2 == 0):
        out = m(x)
        if s == 2:
            torch.clear_autocast_cache()
        loss = F.mse_loss(out.float(), y)
    loss.backward()
    opt.step()
    print(s, loss.item().hex(), out.dtype, M(m), torch.is_autocast_cache_enabled())
from torch.amp.autocast_mode import _enter_autocast, _exit_autocast

mode = _enter_autocast("cpu", torch.bfloat16, True, True)
out = m(batch(9)[0])
_exit_autocast(mode)
(g,) = torch.autograd.grad(out.float().square().sum(), [m.w], create_graph=True)
print(g.dtype, H(g), torch.is_autocast_enabled("cpu"))
g.square().sum().backward()
print(M(m), H([str(s) for s in seen]), len(seen), seen[:6], R())
