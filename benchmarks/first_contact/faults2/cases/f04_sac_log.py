"""cpnota/autonomous-learning-library#139: log(1 - action**2 + 1e-6) of an action scaled beyond one
TRUTH op=aten.log reason=argument outside the function's domain"""
import sys
import torch
from torch import nn
import torch.nn.functional as F
from _util import done
CURED = "--cured" in sys.argv
torch.manual_seed(0); torch.set_num_threads(1)

class Actor(nn.Module):
    def __init__(self, scale):
        super().__init__(); self.scale = scale
        self.net = nn.Sequential(nn.Linear(6, 32), nn.ReLU(), nn.Linear(32, 4))
    def forward(self, s):
        mu, ls = self.net(s).chunk(2, -1); ls = ls.clamp(-5, 2)
        n = torch.distributions.Normal(mu, ls.exp()); raw = n.rsample()
        a = torch.tanh(raw) * self.scale
        lp = n.log_prob(raw)
        sq = torch.tanh(raw).pow(2) if CURED else a.pow(2)
        lp = lp - torch.log(1 - sq + 1e-6)  # FAULT
        return a, lp.sum(-1)
actor = Actor(1.5); q = nn.Sequential(nn.Linear(8, 32), nn.ReLU(), nn.Linear(32, 1))
ao, qo = torch.optim.Adam(actor.parameters(), 3e-4), torch.optim.Adam(q.parameters(), 3e-4)
for step in range(5):
    s, r = torch.randn(16, 6), torch.randn(16)
    a, lp = actor(s)
    ql = F.mse_loss(q(torch.cat([s, a.detach()], 1)).squeeze(1), r); qo.zero_grad(); ql.backward(); qo.step()
    al = (0.2 * lp - q(torch.cat([s, a], 1)).squeeze(1)).mean(); ao.zero_grad(); al.backward(); ao.step()
    print(step, ql.item(), al.item())
done(al.detach(), actor, q)
