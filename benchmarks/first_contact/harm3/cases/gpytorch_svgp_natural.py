"""A stochastic variational GP of gpytorch: natural gradients (NGD) for the variational part, Adam for the rest, cholesky with jitter, deep kernel; two optimizers a step."""
# PRELUDE
import gpytorch

g = torch.Generator().manual_seed(1)
X = torch.rand(60, 2, generator=g)
Y = torch.sin(6 * X[:, 0]) + 0.1 * torch.randn(60, generator=g)


class GP(gpytorch.models.ApproximateGP):
    def __init__(self):
        q = gpytorch.variational.NaturalVariationalDistribution(10)
        super().__init__(gpytorch.variational.VariationalStrategy(self, X[:10].clone(), q, learn_inducing_locations=True))
        self.deep = nn.Sequential(nn.Linear(2, 6), nn.Tanh(), nn.Linear(6, 2))
        self.mean = gpytorch.means.ConstantMean()
        self.k = gpytorch.kernels.ScaleKernel(gpytorch.kernels.MaternKernel(ard_num_dims=2))

    def forward(self, x):
        x = self.deep(x)
        return gpytorch.distributions.MultivariateNormal(self.mean(x), self.k(x))


m, lik = GP(), gpytorch.likelihoods.GaussianLikelihood()
W(m)
m.train(), lik.train()
ng = gpytorch.optim.NGD(m.variational_parameters(), num_data=60, lr=0.1)
hy = torch.optim.Adam(list(m.hyperparameters()) + list(lik.parameters()), lr=0.01)
mll = gpytorch.mlls.VariationalELBO(lik, m, num_data=60)
for s in range(6):
    i = torch.randperm(60)[:20]
    ng.zero_grad(), hy.zero_grad()
    loss = -mll(m(X[i]), Y[i])
    loss.backward()
    ng.step(), hy.step()
    print(s, loss.item().hex())
m.eval(), lik.eval()
with torch.no_grad(), gpytorch.settings.fast_pred_var():
    p = lik(m(X[:8]))
    print(H(p.mean, p.variance), R())
print(H(dict(m.state_dict())))
