"""torch.func on a trained model: hessian, jacfwd over jacrev, jvp, linearize, and autograd.functional's jacobian, hessian, vhp with strict and vectorize."""
# PRELUDE
from torch.func import functional_call, hessian, jacfwd, jacrev, jvp, linearize, vjp
from torch.autograd import functional as AF

m = nn.Sequential(nn.Linear(4, 5), nn.Tanh(), nn.Linear(5, 2))
W(m)
opt = torch.optim.Adam(m.parameters(), 1e-2)
for s in range(4):
    opt.zero_grad()
    m(batch(s, 6, 4, 2)[0]).square().mean().backward()
    opt.step()
    x = batch(s, 1, 4, 2)[0][0]
    f = lambda x: m(x).square().sum()
    print(s, H(hessian(f)(x), jacfwd(jacrev(m))(x), jacrev(m)(x)))
    out, d = jvp(m, (x,), (torch.ones_like(x),))
    o2, lin = linearize(m, x)
    o3, back = vjp(m, x)
    print(H(out, d, o2, lin(torch.ones_like(x)), o3, back(torch.ones_like(o3))))
    print(H(AF.jacobian(m, x, vectorize=True), AF.hessian(f, x, strict=True), AF.vhp(f, x, torch.ones_like(x))))
    params = {k: v.detach() for k, v in m.named_parameters()}
    g = torch.func.grad(lambda p: functional_call(m, p, (x,)).sum())(params)
    print(H(g))
print(M(m), R())
