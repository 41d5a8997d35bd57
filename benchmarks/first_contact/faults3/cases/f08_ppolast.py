"""PPO on a small gymnasium environment; the rollout's length leaves a minibatch of one sample.
Source: jolibrain/wheatley#93 ("Last minibatch size is 1, so mb_advantages.std() is nan")."""
import sys, math
import gymnasium as gym
import numpy as np
import torch
from torch import nn
from torch.distributions import Categorical

torch.set_num_threads(1)
torch.manual_seed(8)
np.random.seed(8)
CURED = "--cured" in sys.argv


class Agent(nn.Module):
    def __init__(self):
        super().__init__()
        self.critic = nn.Sequential(nn.Linear(4, 32), nn.Tanh(), nn.Linear(32, 1))
        self.actor = nn.Sequential(nn.Linear(4, 32), nn.Tanh(), nn.Linear(32, 2))

    def act(self, obs, action=None):
        dist = Categorical(logits=self.actor(obs), validate_args=False)
        action = dist.sample() if action is None else action
        return action, dist.log_prob(action), dist.entropy(), self.critic(obs).squeeze(-1)


env = gym.make("CartPole-v1")
agent = Agent()
opt = torch.optim.Adam(agent.parameters(), lr=2.5e-4, eps=1e-5)
obs, _ = env.reset(seed=8)
step, losses = 0, []
for update in range(3):
    O, A, L, R, D, V = [], [], [], [], [], []
    for t in range(64 if update < 2 else 65):  # the budget's rest goes into the last rollout
        with torch.no_grad():
            a, lp, _, v = agent.act(torch.as_tensor(obs)[None])
        nobs, r, term, trunc, _ = env.step(int(a))
        O.append(torch.as_tensor(obs)), A.append(a[0]), L.append(lp[0]), R.append(r), D.append(term or trunc), V.append(v[0])
        obs = env.reset()[0] if term or trunc else nobs
    O, A, L, V = map(torch.stack, (O, A, L, V))
    adv, last = torch.zeros(len(R)), 0.0
    for t in reversed(range(len(R))):
        nv = 0.0 if t == len(R) - 1 else V[t + 1] * (1 - D[t])
        last = R[t] + 0.99 * nv - V[t] + 0.99 * 0.95 * (1 - D[t]) * last
        adv[t] = last
    returns = adv + V
    idx = torch.randperm(len(R))
    for mb in idx.split(16):
        _, lp, ent, v = agent.act(O[mb], A[mb])
        a = adv[mb]
        if len(mb) > 1 or not CURED:
            a = (a - a.mean()) / (a.std() + 1e-8)  # FAULT
        ratio = (lp - L[mb]).exp()
        pg = torch.max(-a * ratio, -a * ratio.clamp(0.8, 1.2)).mean()
        loss = pg - 0.01 * ent.mean() + 0.5 * ((v - returns[mb]) ** 2).mean()
        opt.zero_grad()
        loss.backward()
        nn.utils.clip_grad_norm_(agent.parameters(), 0.5)
        opt.step()
        losses.append(loss.item())
        step += 1
print(losses)
print("FINITE", all(map(math.isfinite, losses)) and all(bool(p.isfinite().all()) for p in agent.parameters()))
