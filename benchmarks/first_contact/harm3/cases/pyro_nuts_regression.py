"""pyro's NUTS on a small Bayesian network: thousands of gradients by autograd.grad with adaptation; samples, divergences, acceptance, random states."""
# PRELUDE
import pyro
import pyro.distributions as dist
from pyro.infer import MCMC, NUTS
from pyro.nn import PyroModule, PyroSample

pyro.set_rng_seed(4)
X = torch.randn(12, 3, generator=torch.Generator().manual_seed(1))
Y = X @ torch.tensor([1.0, -2.0, 0.5])


class B(PyroModule):
    def __init__(self):
        super().__init__()
        self.l = PyroModule[nn.Linear](3, 1)
        self.l.weight = PyroSample(dist.Normal(0.0, 1.0).expand([1, 3]).to_event(2))
        self.l.bias = PyroSample(dist.Normal(0.0, 1.0).expand([1]).to_event(1))

    def forward(self, x, y=None):
        s = pyro.sample("s", dist.HalfCauchy(1.0))
        mean = self.l(x).squeeze(-1)
        with pyro.plate("d", len(x)):
            pyro.sample("o", dist.Normal(mean, s), obs=y)
        return mean


mc = MCMC(NUTS(B(), max_tree_depth=3), num_samples=8, warmup_steps=8, disable_progbar=True)
mc.run(X, Y)
s = mc.get_samples()
print(sorted(s), H({k: s[k] for k in sorted(s)}), mc.diagnostics()["divergences"], R())
