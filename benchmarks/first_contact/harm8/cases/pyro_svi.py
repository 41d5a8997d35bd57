# what: stochastic variational inference by pyro: parameter store, trace handlers, validation of nan off and on
# benign: yes
# cmp: status stdout files left
# PRELUDE
import pyro, pyro.distributions as dist
from pyro.infer import SVI, Trace_ELBO, Predictive
from pyro.nn import PyroModule, PyroSample
pyro.set_rng_seed(3); x = torch.randn(20, 3); y = x @ torch.tensor([1., -2., .5]) + .1
class BNN(PyroModule):
    def __init__(self): super().__init__(); self.l = PyroModule[nn.Linear](3, 1); self.l.weight = PyroSample(dist.Normal(0., 1.).expand([1, 3]).to_event(2)); self.l.bias = PyroSample(dist.Normal(0., 5.).expand([1]).to_event(1))
    def forward(self, x, y=None):
        s = pyro.sample("s", dist.LogNormal(0., 1.)); mu = self.l(x).squeeze(-1)
        with pyro.plate("d", len(x)): pyro.sample("o", dist.Normal(mu, s), obs=y)
        return mu
m = BNN(); W(m); g = pyro.infer.autoguide.AutoDiagonalNormal(m); svi = SVI(m, g, pyro.optim.Adam({"lr": .03}), Trace_ELBO(num_particles=2))
for s in range(12): print(float(svi.step(x, y)).hex())
print(H({k: v for k, v in pyro.get_param_store().items()}), R())
pr = Predictive(m, guide=g, num_samples=4)(x[:3]); print(H(dict(pr)))
try: dist.Normal(torch.tensor(float("nan")), 1.)
except ValueError as e: print("ValueError", str(e)[:50])
print(dist.Categorical(logits=torch.tensor([0., -float("inf"), 1.])).entropy().item(), dist.Normal(0., 1., validate_args=False).log_prob(torch.tensor(float("inf"))).item(), R())
