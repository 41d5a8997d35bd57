"""An exact GP of gpytorch: hyperparameters by Adam, then predictions with cached factors (eval mode).

Source: https://github.com/cornellius-gp/gpytorch/pull/2734
"""
# PRELUDE
import gpytorch
class GP(gpytorch.models.ExactGP):
    def __init__(self, x, y, lik):
        super().__init__(x, y, lik)
        self.mean_module = gpytorch.means.ConstantMean()
        self.covar_module = gpytorch.kernels.ScaleKernel(gpytorch.kernels.RBFKernel())
    def forward(self, x):
        return gpytorch.distributions.MultivariateNormal(self.mean_module(x), self.covar_module(x))
torch.manual_seed(0)
x = torch.linspace(0, 1, 15)
y = torch.sin(6 * x) + 0.1 * torch.randn(15)
lik = gpytorch.likelihoods.GaussianLikelihood()
m = GP(x, y, lik); W(m)
mll = gpytorch.mlls.ExactMarginalLogLikelihood(lik, m)
opt = torch.optim.Adam(m.parameters(), 0.1)
m.train(); lik.train()
for s in range(5):
    opt.zero_grad()
    loss = -mll(m(x), y)
    loss.backward(); opt.step()
    print(float(loss.detach()).hex())
m.eval(); lik.eval()
with torch.no_grad(), gpytorch.settings.fast_pred_var():
    p = lik(m(torch.linspace(0, 1, 7)))
print(H(p.mean, p.variance), M(m), R())
