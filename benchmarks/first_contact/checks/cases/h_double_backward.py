"""WGAN-GP: critic with a twice differentiable custom Function, create_graph."""
from _c import *
class SoftP(Function):
    @staticmethod
    def forward(ctx, x): ctx.save_for_backward(x); return F.softplus(x)
    @staticmethod
    def backward(ctx, g): x, = ctx.saved_tensors; return g * x.sigmoid()
class A(nn.Module):
    def forward(self, x): return SoftP.apply(x)
D = nn.Sequential(nn.Linear(4, 24), A(), nn.Linear(24, 24), A(), nn.Linear(24, 1)); G = nn.Sequential(nn.Linear(3, 24), nn.ReLU(), nn.Linear(24, 4))
od, og = torch.optim.Adam(D.parameters(), 1e-3), torch.optim.Adam(G.parameters(), 1e-3)
for s in range(6):
    r = torch.randn(32, 4) + 2; f = G(torch.randn(32, 3)); a = torch.rand(32, 1); i = (a * r + (1 - a) * f.detach()).requires_grad_()
    gp = (torch.autograd.grad(D(i).sum(), i, create_graph=True)[0].norm(dim=1) - 1).pow(2).mean()
    l = D(f.detach()).mean() - D(r).mean() + 10 * gp; od.zero_grad(); l.backward(); od.step()
    lg = -D(f).mean(); og.zero_grad(); lg.backward(); og.step(); print(s, l.item().hex(), lg.item().hex())
