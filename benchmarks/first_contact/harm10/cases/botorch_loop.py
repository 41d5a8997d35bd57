#: what: a BoTorch Bayesian optimization loop: a deep kernel's GP refitted with scipy, LogEI optimized from raw samples, incumbent -inf at the start
#: benign: -inf incumbent, retried fits
#: source: https://raw.githubusercontent.com/meta-pytorch/botorch/main/README.md
#: watch: false
# PRELUDE
import warnings; warnings.filterwarnings("ignore")
from botorch.models import SingleTaskGP; from botorch.fit import fit_gpytorch_mll; from botorch.acquisition import LogExpectedImprovement; from botorch.optim import optimize_acqf; from gpytorch.mlls import ExactMarginalLogLikelihood
torch.set_default_dtype(torch.float64); X = torch.rand(5, 2); best = torch.tensor(-float("inf"))
f = lambda x: 1 - (x - 0.5).norm(dim=-1, keepdim=True)
Y = f(X)
for i in range(2):
    gp = SingleTaskGP(X, Y); fit_gpytorch_mll(ExactMarginalLogLikelihood(gp.likelihood, gp)); best = torch.maximum(best, Y.max()); c, v = optimize_acqf(LogExpectedImprovement(gp, best_f=best), bounds=torch.stack([torch.zeros(2), torch.ones(2)]), q=1, num_restarts=2, raw_samples=16, options=dict(maxiter=20)); X = torch.cat([X, c]); Y = torch.cat([Y, f(c)]); print(i, sha(c, v), best.item())
show(gp)
