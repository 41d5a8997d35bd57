# what: torch.func and autograd.functional: hessian, jacrev chunks, per-sample gradients, linearize, Laplace approximation, Newton step
# cmp: status stdout files left
# PRELUDE
import warnings; warnings.simplefilter("ignore")
from torch.func import functional_call, hessian, jacrev, jacfwd, vmap, grad, linearize, vjp
m = nn.Sequential(nn.Linear(3, 4), nn.Tanh(), nn.Linear(4, 1)); W(m); opt = torch.optim.SGD(m.parameters(), lr=.1)
for s in range(3):
    x, y = batch(s, i=3, o=1); opt.zero_grad(); l = F.mse_loss(m(x), y); l.backward(); opt.step(); w = {k: p.detach() for k, p in m.named_parameters()}; L = lambda w, x, y: F.mse_loss(functional_call(m, w, (x,)), y)
    print(float(l.detach()).hex(), H(hessian(L)(w, x, y)), H(vmap(grad(L), (None, 0, 0))(w, x, y)), H(jacrev(lambda q: m(q), chunk_size=2)(x)), H(vmap(jacfwd(m))(x)))
    f, lin = linearize(lambda q: functional_call(m, w, (q,)), x); print(H(f, lin(torch.ones_like(x)))); o, fn = vjp(m, x); print(H(o, fn(torch.ones_like(o))))
    print(H(torch.autograd.functional.hessian(lambda q: m(q).sum(), x[:1], vectorize=True)), H(torch.autograd.functional.vhp(lambda q: m(q).pow(2).sum(), x, torch.ones_like(x))))
print(M(m), R())
