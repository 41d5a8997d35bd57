"""Healthy: full-batch LBFGS with strong Wolfe on a small PINN-like fit with second derivatives: the same batch at each of 300 steps, several
closures a step."""
import sys, math, copy, random, torch, torch.nn as nn, torch.nn.functional as F
torch.manual_seed(0); random.seed(0); torch.set_num_threads(1)
n = nn.Sequential(nn.Linear(1, 16), nn.Tanh(), nn.Linear(16, 16), nn.Tanh(), nn.Linear(16, 1)); opt = torch.optim.LBFGS(n.parameters(), max_iter=4, line_search_fn="strong_wolfe"); x = torch.linspace(0, 3.1416, 40)[:, None].requires_grad_()
def closure():
    opt.zero_grad(); u = n(x); d, = torch.autograd.grad(u.sum(), x, create_graph=True); dd, = torch.autograd.grad(d.sum(), x, create_graph=True); l = ((dd + torch.sin(x)) ** 2).mean() + u[0].pow(2).sum() + u[-1].pow(2).sum(); l.backward(); return l
for step in range(300):
    loss = opt.step(closure)
    if step % 30 == 0: print(step, loss.item())
