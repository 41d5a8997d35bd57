"""Soft actor-critic whose log-probability corrects for tanh with the scaled action.
Source: philtabor/Actor-Critic-Methods-Paper-To-Code#7, philtabor/Youtube-Code-Repository#59."""
import sys, math, copy
import torch
from torch import nn
from torch.distributions import Normal

torch.set_num_threads(1)
torch.manual_seed(7)
CURED = "--cured" in sys.argv
MAX_ACTION = 2.0


class Actor(nn.Module):
    def __init__(self):
        super().__init__()
        self.body = nn.Sequential(nn.Linear(3, 64), nn.ReLU(), nn.Linear(64, 64), nn.ReLU())
        self.mu, self.sigma = nn.Linear(64, 1), nn.Linear(64, 1)

    def sample(self, s):
        h = self.body(s)
        dist = Normal(self.mu(h), self.sigma(h).sigmoid() * self.noise, validate_args=False)
        raw = dist.rsample()
        action = torch.tanh(raw) * MAX_ACTION
        squashed = torch.tanh(raw) if CURED else action
        logp = dist.log_prob(raw) - torch.log(1 - squashed.pow(2) + 1e-6)  # FAULT
        return action, logp.sum(-1, keepdim=True)


def critic():
    return nn.Sequential(nn.Linear(4, 64), nn.ReLU(), nn.Linear(64, 1))


actor, q1, q2 = Actor(), critic(), critic()
t1, t2 = copy.deepcopy(q1), copy.deepcopy(q2)
pi_opt = torch.optim.Adam(actor.parameters(), 3e-4)
q_opt = torch.optim.Adam([*q1.parameters(), *q2.parameters()], 1e-3)
alpha, losses = 0.2, []
for step in range(20):
    actor.noise = 0.05 + 0.02 * step  # exploration grows
    s, a, s2 = torch.randn(64, 3), torch.rand(64, 1) * 4 - 2, torch.randn(64, 3)
    r = -(s[:, :1] ** 2) - 0.1 * a ** 2
    with torch.no_grad():
        a2, lp2 = actor.sample(s2)
        nxt = torch.cat([s2, a2], 1)
        y = r + 0.99 * (torch.min(t1(nxt), t2(nxt)) - alpha * lp2)
    sa = torch.cat([s, a], 1)
    q_loss = ((q1(sa) - y) ** 2).mean() + ((q2(sa) - y) ** 2).mean()
    q_opt.zero_grad()
    q_loss.backward()
    q_opt.step()
    api, lp = actor.sample(s)
    new = torch.cat([s, api], 1)
    pi_loss = (alpha * lp - torch.min(q1(new), q2(new))).mean()
    pi_opt.zero_grad()
    pi_loss.backward()
    pi_opt.step()
    with torch.no_grad():
        for t, q in ((t1, q1), (t2, q2)):
            for pt, p in zip(t.parameters(), q.parameters()):
                pt.lerp_(p, 0.005)
    losses.append(q_loss.item() + pi_loss.item())
    if not math.isfinite(losses[-1]) and step > 16:
        break
print(losses)
print("FINITE", all(map(math.isfinite, losses)) and all(bool(p.isfinite().all()) for m in (actor, q1, q2, t1) for p in m.parameters()))
