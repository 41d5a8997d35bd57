"""Hessian-vector products and Hessians through a model, by double backward, torch.func and autograd.functional.

Source: https://github.com/amirgholami/PyHessian/issues/25
"""
# PRELUDE
m = net(); W(m)
x, y = batch(0)
ps = list(m.parameters())
loss = F.mse_loss(m(x), y)
g = torch.autograd.grad(loss, ps, create_graph=True)
v = [torch.ones_like(p) for p in ps]
hv = torch.autograd.grad(g, ps, v, allow_unused=True, retain_graph=True)
print(H([h for h in hv if h is not None]), [h is None for h in hv])
g2 = torch.autograd.grad(sum((a * a).sum() for a in g), ps)
print(H(list(g2)))
print(H(torch.autograd.functional.hessian(lambda z: m(z).square().sum(), x[:2])))
d = dict(m.named_parameters())
print(H(torch.func.hessian(lambda w: F.mse_loss(torch.func.functional_call(m, {**{k: t.detach() for k, t in d.items()}, "4.bias": w}, (x,)), y))(d["4.bias"].detach())))
loss = F.mse_loss(m(x), y); loss.backward(create_graph=True)
pen = sum((p.grad ** 2).sum() for p in ps); pen.backward()
print(M(m), R())
