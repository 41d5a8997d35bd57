"""Forward-mode AD through a model (dual_level), jvp of torch.func, forward over reverse.

Source: https://docs.pytorch.org/tutorials/intermediate/forward_ad_usage.html
"""
# PRELUDE
import torch.autograd.forward_ad as fw
m = net(); W(m)
x, y = batch(0); t = batch(1)[0]
with fw.dual_level():
    out = m(fw.make_dual(x, t)); p, d = fw.unpack_dual(out)
    print(H(p, d))
print(H(*torch.func.jvp(m, (x,), (t,))), H(torch.func.jvp(torch.func.grad(lambda z: m(z).square().sum()), (x,), (t,))[1]))
print(H(torch.func.jacfwd(lambda z: m(z).sum(0))(x[:1])))
print(train(m, torch.optim.SGD(m.parameters(), 0.1), 3), M(m))
