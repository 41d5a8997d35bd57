"""PPO computes the old log-probability in each update from the current policy, and keeps its graph: the ratio is exactly 1 and its
gradient exactly 0. The actor never learns; the critic does.
Source: https://github.com/tensorforce/tensorforce/issues/312
Truth: the actor's weights are the same bits at the end.
Could a tool know: yes: all gradients of a model in an optimizer are exactly zero.
"""
import sys
import torch
from torch import nn
from torch.distributions import Categorical

HEALTHY = "--healthy" in sys.argv
torch.manual_seed(0)
torch.set_num_threads(1)
actor = nn.Sequential(nn.Linear(5, 32), nn.Tanh(), nn.Linear(32, 3))
critic = nn.Sequential(nn.Linear(5, 32), nn.Tanh(), nn.Linear(32, 1))
opt_a = torch.optim.Adam(actor.parameters(), lr=3e-3)
opt_c = torch.optim.Adam(critic.parameters(), lr=3e-3)
before = actor[0].weight.detach().clone()
W = torch.randn(5, 3)
for it in range(50):
    s = torch.randn(128, 5)
    with torch.no_grad():
        d = Categorical(logits=actor(s))
        a = d.sample()
        stored = d.log_prob(a)
    r = (a == (s @ W).argmax(1)).float() + 0.1 * torch.randn(128)
    with torch.no_grad():
        adv = r - critic(s)[:, 0]
        adv = (adv - adv.mean()) / (adv.std() + 1e-8)
    for _ in range(4):
        new = Categorical(logits=actor(s)).log_prob(a)
        old = stored if HEALTHY else new
        ratio = (new - old).exp()
        actor_loss = -torch.min(ratio * adv, ratio.clamp(0.8, 1.2) * adv).mean()
        critic_loss = nn.functional.mse_loss(critic(s)[:, 0], r)
        opt_a.zero_grad()
        opt_c.zero_grad()
        (actor_loss + critic_loss).backward()
        opt_a.step()
        opt_c.step()
print(f"reward {r.mean():.3f} critic {critic_loss.item():.3f} actor moved {(actor[0].weight - before).abs().max():.2e}")
