"""SVI of pyro with a guide network: the param store, losses, random states.

Source: https://github.com/pyro-ppl/pyro/issues/2031
"""
# PRELUDE
import pyro, pyro.distributions as dist
from pyro.infer import SVI, Trace_ELBO
pyro.set_rng_seed(2)
dec, enc = nn.Linear(2, 5), nn.Linear(5, 4)
def model(x):
    pyro.module("dec", dec)
    with pyro.plate("d", len(x)):
        z = pyro.sample("z", dist.Normal(torch.zeros(len(x), 2), 1.0).to_event(1))
        pyro.sample("x", dist.Normal(dec(z), 0.5).to_event(1), obs=x)
def guide(x):
    pyro.module("enc", enc)
    with pyro.plate("d", len(x)):
        h = enc(x)
        pyro.sample("z", dist.Normal(h[:, :2], F.softplus(h[:, 2:]) + 0.1).to_event(1))
svi = SVI(model, guide, pyro.optim.Adam({"lr": 0.01}), Trace_ELBO(num_particles=2))
x = torch.randn(8, 5)
for s in range(6):
    print(float(svi.step(x)).hex())
print(sorted(pyro.get_param_store().keys()), M(dec), M(enc), R())
