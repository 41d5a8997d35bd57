"""GPyTorch: deep kernel learning with a ScaleToBounds feature extractor and a multitask likelihood with priors, Cholesky and CG paths, fantasies and fast predictive variance."""
# PRELUDE
import warnings
warnings.filterwarnings("ignore")
import gpytorch as gp
x = torch.rand(24, 3, generator=torch.Generator().manual_seed(1))
y = torch.stack([(6 * x[:, 0]).sin(), (4 * x[:, 1]).cos()], -1)
class GP(gp.models.ExactGP):
    def __init__(self, x, y, l):
        super().__init__(x, y, l)
        self.fe = nn.Sequential(nn.Linear(3, 8), nn.ReLU(), nn.Linear(8, 2))
        self.sc = gp.utils.grid.ScaleToBounds(-1.0, 1.0)
        self.mean_module = gp.means.MultitaskMean(gp.means.ConstantMean(), num_tasks=2)
        self.covar_module = gp.kernels.MultitaskKernel(gp.kernels.MaternKernel(lengthscale_prior=gp.priors.GammaPriorPatched(3.0, 6.0) if hasattr(gp.priors, "GammaPriorPatched") else gp.priors.GammaPrior(3.0, 6.0)), num_tasks=2, rank=1)
    def forward(self, x):
        z = self.sc(self.fe(x))
        return gp.distributions.MultitaskMultivariateNormal(self.mean_module(z), self.covar_module(z))
l = gp.likelihoods.MultitaskGaussianLikelihood(num_tasks=2)
m = GP(x, y, l)
W(m)
m.train(), l.train()
opt = torch.optim.Adam(m.parameters(), 0.05)
mll = gp.mlls.ExactMarginalLogLikelihood(l, m)
for s in range(6):
    opt.zero_grad()
    loss = -mll(m(x), y)
    loss.backward()
    opt.step()
    print(s, float(loss).hex())
m.eval(), l.eval()
with torch.no_grad(), gp.settings.fast_pred_var():
    p = l(m(torch.rand(5, 3)))
    print(H(p.mean, p.variance))
print(M(m), R())
