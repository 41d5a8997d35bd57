"""In-place operations on module outputs, inputs, views of them; version counters and the errors of saved tensors that changed.

Source: https://github.com/pytorch/pytorch/pull/3384
"""
# PRELUDE
m = net(); W(m)
x, y = batch(0)
h = m[0](x); print(h._version); h.mul_(2); print(h._version, h.is_leaf)
h2 = h[:, :4]; h2.add_(1); print(h._version, h2._version, type(h2.grad_fn).__name__, type(h.grad_fn).__name__, h2._base is h)
out = m[4](m[3](m[2](m[1](h)).add_(0.1))); out[0].zero_(); out.relu_()
out.sum().backward(); print(M(m))
class Net(nn.Module):
    def __init__(self): super().__init__(); self.l = nn.Linear(8, 8); self.e = nn.Identity()
    def forward(self, x):
        x[:, 1].fill_(3); a = self.l(x); b = self.e(a); assert b is a; b[:, 0] = 0; return b
m = Net(); W(m); xx = x.clone(); o = m(xx); v = o._version; o += 1; print(v, o._version, H(xx), xx._version)
o.sum().backward(); print(M(m))
t = m.l(x); e = t.exp(); e.mul_(2)
try:
    e.sum().backward()
except RuntimeError as err:
    print(str(err).split(":")[0][:70])
a, b = m(x.clone()).unbind(0)[:2]
try:
    a.add_(1)
except RuntimeError as err:
    print(str(err)[:60])
