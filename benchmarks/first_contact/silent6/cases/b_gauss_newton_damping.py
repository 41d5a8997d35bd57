"""From google-deepmind/kfac-jax issue 183.
Diverges: the damping of a Gauss-Newton method is lowered at each step and never raised; the curvature of a batch is singular.
"""
import sys, math, copy, torch, torch.nn as nn, torch.nn.functional as F
H = "--healthy" in sys.argv
torch.manual_seed(0); torch.set_num_threads(1)
def log(step, loss):
    v = float(loss); print("step", step, "loss", v, flush=True); return math.isfinite(v) and abs(v) < 1e30
net = nn.Sequential(nn.Linear(2, 12), nn.Tanh(), nn.Linear(12, 1)); names, ps = zip(*net.named_parameters()); lam = .3
def f(params, x): return torch.func.functional_call(net, dict(zip(names, params)), (x,)).squeeze(1)
for step in range(300):
    x = torch.rand(24, 2) * 4 - 2; y = torch.sin(x[:, 0]) * x[:, 1] + .1 * torch.randn(24)
    r = f(ps, x) - y; loss = (r ** 2).mean(); loss.backward(); net.zero_grad()
    if not log(step, loss): break
    J = torch.cat([j.reshape(24, -1) for j in torch.func.jacrev(f)(tuple(p.detach() for p in ps), x)], 1); A = J.t() @ J / 24 + lam * torch.eye(J.shape[1]); d, info = torch.linalg.solve_ex(A, J.t() @ r.detach() / 24)
    i = 0
    with torch.no_grad():
        for p in ps: p -= d[i:i + p.numel()].view_as(p); i += p.numel()
    lam = lam if H else lam * .94
