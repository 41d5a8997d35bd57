"""Actor-critic: the advantage in the policy loss is not detached, so the critic gets the policy loss's gradient as well.
Source: https://github.com/astariul/encode-attend-navigate-pytorch/issues/2 (also keras-team/keras-io issue 194)
Truth: norm of the critic's gradient from the policy loss alone (0 expected).
Could a tool know: no/partly. Joint losses reach shared parameters in most models.
"""
import sys, torch, torch.nn.functional as F
from torch import nn
HEALTHY = "--healthy" in sys.argv
torch.set_num_threads(1); torch.manual_seed(0)
actor = nn.Sequential(nn.Linear(4, 32), nn.Tanh(), nn.Linear(32, 2)); critic = nn.Sequential(nn.Linear(4, 32), nn.Tanh(), nn.Linear(32, 1))
opt = torch.optim.Adam(list(actor.parameters()) + list(critic.parameters()), 5e-3)
s = torch.randn(16, 4) * 0.1
for step in range(150):      # a walker that is to stay near 0
    lps, vs, rs = [], [], []
    for t in range(5):
        d = torch.distributions.Categorical(logits=actor(s)); a = d.sample(); vs.append(critic(s)[:, 0]); lps.append(d.log_prob(a))
        s = (0.95 * s + 0.2 * (a[:, None] * 2.0 - 1) + 0.05 * torch.randn(16, 4)).detach(); rs.append(1 - s.pow(2).mean(1))
    with torch.no_grad(): R = critic(s)[:, 0]
    ret = []
    for r in reversed(rs): R = r + 0.95 * R; ret.insert(0, R)
    adv = torch.stack(ret) - torch.stack(vs)
    pl = -(torch.stack(lps) * (adv.detach() if HEALTHY else adv)).mean(); vl = adv.pow(2).mean()
    if step == 149: g = torch.autograd.grad(pl, list(critic.parameters()), retain_graph=True, allow_unused=True); n = sum(0.0 if q is None else q.norm().item() for q in g)
    opt.zero_grad(); (pl + 0.5 * vl).backward(); opt.step()
print(f"TRUTH critic's gradient from the policy loss {n:.4f} reward {torch.stack(rs).mean():.3f}")
