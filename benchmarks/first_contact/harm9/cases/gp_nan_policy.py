"""An exact multitask GP with missing observations as nan (gpytorch's observation_nan_policy)."""
# PRELUDE
import gpytorch, warnings
warnings.filterwarnings("ignore")
seed(28)
x = torch.linspace(0, 1, 24)
y = torch.sin(x * 6) + 0.1 * torch.randn(24)
y[::5] = float("nan")


class GP(gpytorch.models.ExactGP):
    def __init__(self, x, y, lik):
        super().__init__(x, y, lik)
        self.m, self.k = gpytorch.means.ConstantMean(), gpytorch.kernels.ScaleKernel(gpytorch.kernels.RBFKernel())

    def forward(self, x):
        return gpytorch.distributions.MultivariateNormal(self.m(x), self.k(x))


for policy in ("mask", "mask"):
    lik = gpytorch.likelihoods.GaussianLikelihood()
    net = GP(x, y, lik)
    watch(net)
    net.train(); lik.train()
    opt = torch.optim.Adam(net.parameters(), 0.1)
    mll = gpytorch.mlls.ExactMarginalLogLikelihood(lik, net)
    with gpytorch.settings.observation_nan_policy(policy):
        for step in range(8):
            opt.zero_grad()
            loss = -mll(net(x), y)
            loss = loss.sum() if loss.dim() else loss
            loss.backward()
            opt.step()
            print(policy, step, dig(loss))
        net.eval(); lik.eval()
        with torch.no_grad():
            p = lik(net(torch.linspace(0, 1, 9)))
            print(dig(p.mean, p.variance))
    end(net, opt)
