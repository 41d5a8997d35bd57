import torch, torch.nn.functional as F
from torch import nn
torch.manual_seed(0)

def ok(step, loss, *models):
    ps = [p for m in models for p in m.parameters()]
    print(step, "loss", bool(torch.isfinite(loss.detach()).all()), "grads", all(p.grad is None or bool(p.grad.isfinite().all()) for p in ps),
          "weights", all(bool(p.isfinite().all()) for p in ps), flush=True)

D = nn.Sequential(nn.Linear(4, 8), nn.ReLU(), nn.Linear(8, 1)); G = nn.Linear(2, 4)
od, og = torch.optim.Adam(D.parameters(), 1e-3), torch.optim.Adam(G.parameters(), 1e-3)
def penalty(real, fake):
    a = torch.rand(len(real), 1)
    x = (a * real + (1 - a) * fake).requires_grad_()
    g, = torch.autograd.grad(D(x).sum(), x, create_graph=True)
    return ((g.pow(2).sum(1).sqrt() - 1) ** 2).mean()
for step in range(4):
    real, fake = torch.randn(8, 4), G(torch.randn(8, 2))
    if step == 2:
        with torch.no_grad(): D[0].bias.fill_(-20)  # all units dead: the gradient is 0
    loss = D(fake.detach()).mean() - D(real).mean() + 10 * penalty(real, fake.detach())
    od.zero_grad(); loss.backward(); od.step()
    og.zero_grad(); gl = -D(G(torch.randn(8, 2))).mean(); gl.backward(); og.step()
    ok(step, loss, D, G)
