#: what: Jacobian descent with torchjd: jac of several losses by batched autograd, aggregated into .grad
#: source: https://pypi.org/project/torchjd
# PRELUDE
from torchjd import autojac; from torchjd.aggregation import Mean, MGDA
shared = nn.Sequential(nn.Linear(6, 12), nn.ReLU()); a, b = nn.Linear(12, 1), nn.Linear(12, 1); m = nn.ModuleList([shared, a, b]); watch(m); opt = torch.optim.SGD(m.parameters(), 0.05); agg = MGDA()
for s in range(12):
    x = torch.randn(8, 6); z = shared(x); la, lb = F.mse_loss(a(z), x[:, :1]), F.mse_loss(b(z), -3 * x[:, 1:2]); opt.zero_grad()
    autojac.mtl_backward([la, lb], features=[z]) if not hasattr(autojac, "jac_to_grad") else (autojac.mtl_backward([la, lb], features=z), autojac.jac_to_grad(shared.parameters(), agg))
    opt.step(); print(la.item(), lb.item())
show(m, opt)
