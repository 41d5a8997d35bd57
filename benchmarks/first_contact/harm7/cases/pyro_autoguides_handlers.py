"""Pyro's autoguides, Renyi and TraceGraph ELBOs, poutine handlers, importance sampling, SVGD and a neural likelihood must keep losses, parameters, traces and random states."""
# PRELUDE
import pyro
import pyro.distributions as dist
from pyro import poutine
from pyro.infer import SVI, Importance, Predictive, RenyiELBO, Trace_ELBO, TraceGraph_ELBO, TraceMeanField_ELBO
from pyro.infer.autoguide import AutoDiagonalNormal, AutoIAFNormal, AutoLaplaceApproximation, AutoLowRankMultivariateNormal, AutoMultivariateNormal

enc = net(3, 3, 8, 2)
W(enc)
x = torch.randn(20, 3, generator=torch.Generator().manual_seed(1))
y = (x[:, 0] * 2 - x[:, 1]).tanh()


def model(x, y=None):
    pyro.module("enc", enc)
    w = pyro.sample("w", dist.Normal(0, 1).expand([2]).to_event(1))
    sig = pyro.sample("sig", dist.LogNormal(-1, 0.3))
    k = pyro.sample("c", dist.Dirichlet(torch.ones(3)))
    with pyro.plate("data", len(x), subsample_size=8) as i:
        mu = enc(x[i]) @ w + k[0]
        pyro.sample("obs", dist.StudentT(4.0, mu, sig), obs=None if y is None else y[i])
    return mu


for guide_cls, elbo in ((AutoDiagonalNormal, Trace_ELBO(2)), (AutoMultivariateNormal, RenyiELBO(0.5, 3)), (AutoLowRankMultivariateNormal, TraceGraph_ELBO()), (AutoIAFNormal, Trace_ELBO()), (AutoDiagonalNormal, TraceMeanField_ELBO())):
    pyro.clear_param_store()
    pyro.set_rng_seed(0)
    guide = guide_cls(model)
    svi = SVI(model, guide, pyro.optim.ClippedAdam({"lr": 0.02}), elbo)
    for s in range(4):
        loss = svi.step(x, y)
        print(guide_cls.__name__, type(elbo).__name__, s, float(loss).hex(), H({k: v for k, v in sorted(pyro.get_param_store().items())}), R())
    print(H(guide.median(x, y)) if guide_cls is not AutoIAFNormal else None, M(enc))
    tr = poutine.trace(poutine.condition(model, {"w": torch.ones(2)})).get_trace(x, y)
    tr.compute_log_prob()
    print(H(tr.log_prob_sum()), {k: H(v["log_prob"]) for k, v in sorted(tr.nodes.items()) if v["type"] == "sample" and "log_prob" in v}, R())
pred = Predictive(model, guide=guide, num_samples=3)(x)
print({k: H(v) for k, v in sorted(pred.items())}, R())
imp = Importance(model, guide=None, num_samples=4).run(x, y)
print(H(torch.tensor([float(w) for w in imp.log_weights])), H(imp.get_normalized_weights()), H(imp.get_ESS()), R())
