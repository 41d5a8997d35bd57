"""LBFGS with a closure (several evaluations a step), strong Wolfe."""
from _c import *
m = nn.Sequential(nn.Linear(4, 16), nn.Tanh(), nn.Linear(16, 1)).double(); x = torch.randn(64, 4).double(); y = x.prod(1, keepdim=True); o = torch.optim.LBFGS(m.parameters(), max_iter=5, line_search_fn="strong_wolfe")
def closure(): o.zero_grad(); l = F.mse_loss(m(x), y); l.backward(); return l
for s in range(6): print(s, o.step(closure).item().hex())
