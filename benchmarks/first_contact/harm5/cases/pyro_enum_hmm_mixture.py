"""Pyro: TraceEnum_ELBO with parallel enumeration of an HMM whose emissions are a watched network, AutoDelta guide, poutine handlers, Predictive and infer_discrete."""
# PRELUDE
import warnings
warnings.filterwarnings("ignore")
import pyro, pyro.distributions as dist
from pyro import poutine
from pyro.infer import SVI, TraceEnum_ELBO, Predictive, infer_discrete
from pyro.infer.autoguide import AutoDelta
pyro.set_rng_seed(3)
class Em(nn.Module):
    def __init__(self):
        super().__init__()
        self.a, self.b = nn.Linear(3, 8), nn.Linear(8, 2)
    def forward(self, z):
        return self.b(torch.tanh(self.a(F.one_hot(z, 3).float())))
em = Em()
W(em)
def model(seq):
    pyro.module("em", em)
    probs = pyro.sample("probs", dist.Dirichlet(torch.ones(3, 3) + 3 * torch.eye(3)).to_event(1))
    z = 0
    for t in pyro.markov(range(len(seq))):
        z = pyro.sample(f"z{t}", dist.Categorical(probs[z]), infer={"enumerate": "parallel"})
        pyro.sample(f"x{t}", dist.Normal(em(z), 1.0).to_event(1), obs=seq[t])
seq = torch.randn(6, 2)
guide = AutoDelta(poutine.block(model, expose=["probs"]))
svi = SVI(model, guide, pyro.optim.ClippedAdam({"lr": 0.05}), TraceEnum_ELBO(max_plate_nesting=0))
for s in range(6):
    print(s, svi.step(seq).hex())
d = infer_discrete(poutine.condition(model, guide(seq)), first_available_dim=-1, temperature=0)
tr = poutine.trace(d).get_trace(seq)
print([int(tr.nodes[f"z{t}"]["value"]) for t in range(6)], M(em), H(dict(pyro.get_param_store().items())), R())
