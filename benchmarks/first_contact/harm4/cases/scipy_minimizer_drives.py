"""scipy.optimize.minimize drives a torch model: flat vectors in, losses and gradients out, no torch optimizer; callbacks, a StopIteration, Hessian-vector products."""
# PRELUDE
from scipy.optimize import minimize
from torch.nn.utils import parameters_to_vector, vector_to_parameters

m = net(9, h=6).double()
W(m)
x, y = batch(0)
x, y = x.double(), y.double()
count = 0


def f(v):
    global count
    count += 1
    vector_to_parameters(torch.from_numpy(v.copy()), m.parameters())
    loss = F.mse_loss(m(x), y)
    m.zero_grad()
    loss.backward()
    return loss.item(), torch.cat([p.grad.reshape(-1) for p in m.parameters()]).numpy().copy()


def hvp(v, p):
    vector_to_parameters(torch.from_numpy(v.copy()), m.parameters())
    g = torch.autograd.grad(F.mse_loss(m(x), y), list(m.parameters()), create_graph=True)
    d = sum((a.reshape(-1) * b).sum() for a, b in zip(g, torch.from_numpy(p.copy()).split([q.numel() for q in m.parameters()])))
    return torch.cat([h.reshape(-1) for h in torch.autograd.grad(d, list(m.parameters()))]).numpy()


v0 = parameters_to_vector(m.parameters()).detach().numpy().copy()
for method, more in (("L-BFGS-B", {}), ("CG", {}), ("Newton-CG", {"hessp": hvp}), ("trust-ncg", {"hessp": hvp})):
    r = minimize(f, v0, jac=True, method=method, options={"maxiter": 6}, **more)
    print(method, float(r.fun).hex(), r.nfev, count, H(r.x), r.status)


def stop(intermediate_result):
    stop.n = getattr(stop, "n", 0) + 1
    if stop.n >= 2:
        raise StopIteration


r = minimize(f, v0, jac=True, method="BFGS", callback=stop)
print(r.nit, r.message[:40], M(m), R())
