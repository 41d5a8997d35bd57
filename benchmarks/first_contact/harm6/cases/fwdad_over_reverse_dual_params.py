"""Forward over reverse: the parameters of a watched model are replaced by dual tensors (fwAD.make_dual) for a Hessian-vector product between ordinary steps; a natural-gradient step is made of it; jvp of plain modules with dual inputs, dual levels left by an exception."""
# PRELUDE
import torch.autograd.forward_ad as fwAD

m = nn.Sequential(nn.Linear(8, 16), nn.Tanh(), nn.Linear(16, 16), nn.Sigmoid(), nn.Linear(16, 4))
W(m)
opt = torch.optim.SGD(m.parameters(), 0.05)


def hvp(vectors, x, y):
    names = [n for n, _ in m.named_parameters()]
    kept = [p for p in m.parameters()]
    with fwAD.dual_level():
        duals = []
        for n, p, v in zip(names, kept, vectors):
            owner, leaf = m.get_submodule(n.rpartition(".")[0]), n.rpartition(".")[2]
            d = fwAD.make_dual(p.detach().requires_grad_(), v)
            duals.append(d)
            del owner._parameters[leaf]
            setattr(owner, leaf, d)
        loss = (m(x) - y).square().mean()
        grads = torch.autograd.grad(loss, duals)
        out = [fwAD.unpack_dual(g).tangent.clone() for g in grads]
        for n, p in zip(names, kept):
            owner, leaf = m.get_submodule(n.rpartition(".")[0]), n.rpartition(".")[2]
            delattr(owner, leaf)
            owner._parameters[leaf] = p
    return out


for s in range(4):
    print(train(m, opt, 2, 2 * s), M(m))
    x, y = batch(40 + s)
    v = [torch.ones_like(p) for p in m.parameters()]
    hv = hvp(v, x, y)
    print(H(hv))
    with torch.no_grad():
        for p, h in zip(m.parameters(), hv):
            p.sub_(0.001 * h)
    with fwAD.dual_level():
        t = fwAD.unpack_dual(m(fwAD.make_dual(x, torch.ones_like(x))))
        print(H(t.primal, t.tangent), t.primal.requires_grad)
try:
    with fwAD.dual_level():
        with fwAD.dual_level():
            pass
except RuntimeError as e:
    print(e)
try:
    with fwAD.dual_level():
        m(fwAD.make_dual(batch(1)[0], torch.ones(6, 8)))
        raise KeyError("left")
except KeyError as e:
    print(repr(e), fwAD._current_level)
print(list(n for n, _ in m.named_parameters()), train(m, opt, 2, 30), M(m))
