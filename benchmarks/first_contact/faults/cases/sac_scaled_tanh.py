"""SAC: log(1 - action^2 + eps) with the action already scaled by max_action = 2.
Source: philtabor/Actor-Critic-Methods-Paper-To-Code#7, philtabor/Youtube-Code-Repository#59, cpnota/autonomous-learning-library#139."""
import sys
import torch
from torch import nn
from torch.distributions import Normal

CURED = "--cured" in sys.argv
torch.manual_seed(0)
MAX_ACTION = 2.0


class Actor(nn.Module):
    def __init__(self):
        super().__init__()
        self.body = nn.Sequential(nn.Linear(3, 32), nn.ReLU())
        self.mu, self.log_std = nn.Linear(32, 1), nn.Linear(32, 1)

    def sample(self, obs):
        h = self.body(obs)
        normal = Normal(self.mu(h), self.log_std(h).clamp(-5, 2).exp())
        raw = normal.rsample()
        squashed = torch.tanh(raw)
        action = squashed * MAX_ACTION
        inside = squashed if CURED else action
        logp = normal.log_prob(raw) - torch.log(1 - inside.pow(2) + 1e-6)  # FAULT
        return action, logp.sum(1)

    def forward(self, obs):
        return self.sample(obs)


class Critic(nn.Module):
    def __init__(self):
        super().__init__()
        self.q = nn.Sequential(nn.Linear(4, 32), nn.ReLU(), nn.Linear(32, 1))

    def forward(self, obs, act):
        return self.q(torch.cat([obs, act], 1)).squeeze(1)


torch.distributions.Distribution.set_default_validate_args(False)
actor, critic = Actor(), Critic()
a_opt, c_opt = torch.optim.Adam(actor.parameters(), 3e-4), torch.optim.Adam(critic.parameters(), 3e-4)
for step in range(3):
    obs, nxt, rew = torch.randn(16, 3), torch.randn(16, 3), torch.randn(16)
    with torch.no_grad():
        a2, logp2 = actor(nxt)
        target = rew + 0.99 * (critic(nxt, a2) - 0.2 * logp2)
    c_loss = (critic(obs, torch.rand(16, 1) * 2 - 1) - target).pow(2).mean()
    c_opt.zero_grad()
    c_loss.backward()
    c_opt.step()
    act, logp = actor(obs)
    a_loss = (0.2 * logp - critic(obs, act)).mean()
    a_opt.zero_grad()
    a_loss.backward()
    a_opt.step()
    print(step, c_loss.item(), a_loss.item())
