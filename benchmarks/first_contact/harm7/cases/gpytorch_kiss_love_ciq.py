"""KISS-GP by conjugate gradients and Lanczos, LOVE variances, pathwise sampling, added jitter with warnings and non-Gaussian likelihoods must keep losses, caches, random states and warnings."""
# PRELUDE
import warnings

import gpytorch as gp


class Kiss(gp.models.ExactGP):
    def __init__(self, x, y, lik):
        super().__init__(x, y, lik)
        self.mean_module = gp.means.LinearMean(1)
        self.covar_module = gp.kernels.GridInterpolationKernel(gp.kernels.ScaleKernel(gp.kernels.SpectralMixtureKernel(num_mixtures=2) if False else gp.kernels.RBFKernel()), grid_size=20, num_dims=1, grid_bounds=[(0.0, 1.0)])

    def forward(self, x):
        return gp.distributions.MultivariateNormal(self.mean_module(x), self.covar_module(x))


class Var(gp.models.ApproximateGP):
    def __init__(self, z):
        d = gp.variational.CholeskyVariationalDistribution(len(z))
        super().__init__(gp.variational.UnwhitenedVariationalStrategy(self, z, d, learn_inducing_locations=True))
        self.mean_module, self.covar_module = gp.means.ConstantMean(), gp.kernels.ScaleKernel(gp.kernels.MaternKernel(1.5))

    def forward(self, x):
        return gp.distributions.MultivariateNormal(self.mean_module(x), self.covar_module(x))


torch.manual_seed(0)
x = torch.linspace(0, 1, 60)
y = torch.sin(x * 12) + 0.1 * torch.randn(60, generator=torch.Generator().manual_seed(1))
lik = gp.likelihoods.GaussianLikelihood()
m = Kiss(x, y, lik)
W(m)
opt = torch.optim.Adam(m.parameters(), 0.1)
mll = gp.mlls.ExactMarginalLogLikelihood(lik, m)
with warnings.catch_warnings(record=True) as seen:
    warnings.simplefilter("always")
    with gp.settings.max_cholesky_size(1), gp.settings.max_preconditioner_size(5), gp.settings.num_trace_samples(4), gp.settings.cg_tolerance(0.1):
        for s in range(4):
            opt.zero_grad()
            loss = -mll(m(x), y)
            loss.backward()
            opt.step()
            print(s, "kiss", float(loss.detach()).hex(), M(m), R())
        m.eval()
        lik.eval()
        with torch.no_grad(), gp.settings.fast_pred_var(), gp.settings.max_root_decomposition_size(10):
            for k in range(2):
                p = lik(m(torch.linspace(0.1, 0.9, 7) + 0.01 * k))
                print("love", H(p.mean), H(p.variance), H(p.rsample(torch.Size([2]))), R())
    v = Var(torch.linspace(0, 1, 8))
    bl = gp.likelihoods.BernoulliLikelihood()
    W(v)
    ov = torch.optim.NAdam([*v.parameters(), *bl.parameters()], 0.05)
    elbo = gp.mlls.VariationalELBO(bl, v, 60)
    for s in range(4):
        ov.zero_grad()
        loss = -elbo(v(x), (y > 0).float())
        loss.backward()
        ov.step()
        print(s, "var", float(loss.detach()).hex(), M(v))
    bad = torch.ones(5, 5) - 1e-7
    print("jitter", H(gp.utils.cholesky.psd_safe_cholesky(bad)))
    k = gp.kernels.RBFKernel()(torch.zeros(6, 1).double(), torch.zeros(6, 1).double()).add_jitter(1e-6)
    print("lazy", H(k.cholesky().to_dense()), H(k.solve(torch.ones(6, 1).double())), H(k.logdet()), H(k.sqrt_inv_matmul(torch.ones(6, 1).double()) if hasattr(k, "sqrt_inv_matmul") else 0))
    try:
        gp.utils.cholesky.psd_safe_cholesky(-torch.eye(3))
    except Exception as e:
        print(type(e).__name__, str(e)[:80])
print(sorted({str(w.message)[:90] for w in seen}))
