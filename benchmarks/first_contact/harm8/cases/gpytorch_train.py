# what: exact GP regression by gpytorch: Cholesky with jitter, fast predictive variances, a nan test in its Cholesky caught
# benign: yes
# cmp: status stdout files left
# PRELUDE
import gpytorch
class GP(gpytorch.models.ExactGP):
    def __init__(self, x, y, l): super().__init__(x, y, l); self.mean_module = gpytorch.means.ConstantMean(); self.covar_module = gpytorch.kernels.ScaleKernel(gpytorch.kernels.RBFKernel())
    def forward(self, x): return gpytorch.distributions.MultivariateNormal(self.mean_module(x), self.covar_module(x))
x = torch.linspace(0, 1, 30); y = torch.sin(x * 6.28) + torch.randn(30) * .1
lik = gpytorch.likelihoods.GaussianLikelihood(); m = GP(x, y, lik); W(m); m.train(); lik.train(); opt = torch.optim.Adam(m.parameters(), lr=.1); mll = gpytorch.mlls.ExactMarginalLogLikelihood(lik, m)
for s in range(8): opt.zero_grad(); l = -mll(m(x), y); l.backward(); opt.step(); print(float(l.detach()).hex())
m.eval(); lik.eval()
with torch.no_grad(), gpytorch.settings.fast_pred_var():
    p = lik(m(torch.linspace(0, 1.2, 11))); print(H(p.mean, p.variance)); torch.manual_seed(1); print(H(p.sample()))
try:
    with torch.no_grad(): gpytorch.utils.cholesky.psd_safe_cholesky(torch.full((3, 3), float("nan")))
except Exception as e: print(type(e).__name__, str(e)[:60])
print(M(m), R())
