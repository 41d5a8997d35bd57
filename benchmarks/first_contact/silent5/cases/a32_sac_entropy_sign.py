import sys, math, copy
import torch, torch.nn as nn, torch.nn.functional as F
torch.set_num_threads(1)
torch.manual_seed(0)
HEALTHY = "--healthy" in sys.argv


def report(*modules):
    s = sum(p.detach().double().abs().sum().item() for m in modules for p in m.state_dict().values())
    print("weights", repr(s))


# ElegantRL 10: the target entropy has the wrong sign for a continuous policy
class Actor(nn.Module):
    def __init__(self):
        super().__init__()
        self.body, self.mu, self.ls = nn.Linear(4, 32), nn.Linear(32, 2), nn.Linear(32, 2)

    def forward(self, s):
        h = F.relu(self.body(s))
        std = self.ls(h).clamp(-5, 2).exp()
        u = self.mu(h) + std * torch.randn_like(std)
        a = torch.tanh(u)
        lp = torch.distributions.Normal(self.mu(h), std).log_prob(u) - torch.log(1 - a ** 2 + 1e-6)
        return a, lp.sum(-1)


actor = Actor()
critic = nn.Sequential(nn.Linear(6, 32), nn.ReLU(), nn.Linear(32, 1))
log_alpha = nn.Parameter(torch.zeros(()))
oa, oc, ot = torch.optim.Adam(actor.parameters(), 1e-3), torch.optim.Adam(critic.parameters(), 1e-3), torch.optim.Adam([log_alpha], 3e-3)
target_entropy = -2.0 if HEALTHY else 2.0
for step in range(200):
    s = torch.randn(32, 4)
    with torch.no_grad():
        a, _ = actor(s)
    r = -(a - s[:, :2].tanh()).pow(2).sum(1)
    lc = F.mse_loss(critic(torch.cat([s, a], 1)).squeeze(1), r)
    oc.zero_grad(); lc.backward(); oc.step()
    a, lp = actor(s)
    la = (log_alpha.exp().detach() * lp - critic(torch.cat([s, a], 1)).squeeze(1)).mean()
    oa.zero_grad(); la.backward(); oa.step()
    lt = -(log_alpha * (lp + target_entropy).detach()).mean()
    ot.zero_grad(); lt.backward(); ot.step()
    if step % 40 == 0:
        print(step, lc.item(), la.item(), log_alpha.item())
report(actor, critic)
