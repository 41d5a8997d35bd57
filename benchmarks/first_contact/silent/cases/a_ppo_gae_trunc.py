"""GAE masks the bootstrap at truncated episodes as if they were terminal.

Source: https://github.com/Toni-SM/skrl/issues/449
Truth: the value of a state near the time limit: the true one is 1 / (1 - gamma) = 20, the faulty one is lower
Could a tool know: no: it is in the rewards' arithmetic
"""
import sys

import torch
import torch.nn.functional as F
from torch import nn

torch.set_num_threads(1)
torch.manual_seed(0)
HEALTHY = "--healthy" in sys.argv

GAMMA, LAM, HORIZON, LIMIT = 0.95, 0.95, 64, 16


class Agent(nn.Module):
    def __init__(self):
        super().__init__()
        self.actor = nn.Sequential(nn.Linear(3, 32), nn.Tanh(), nn.Linear(32, 2))
        self.critic = nn.Sequential(nn.Linear(3, 32), nn.Tanh(), nn.Linear(32, 1))


agent = Agent()
optimizer = torch.optim.Adam(agent.parameters(), lr=3e-3)
state, t = torch.randn(8, 3), 0  # eight environments; reward 1 whatever is done; an episode is cut after 16 steps
for update in range(80):
    S, A, L, V, R, C, B = [], [], [], [], [], [], []
    for _ in range(HORIZON):
        with torch.no_grad():
            dist = torch.distributions.Categorical(logits=agent.actor(state))
            a = dist.sample()
            v = agent.critic(state)[:, 0]
        nxt = state * 0.9 + torch.randn(8, 3) * 0.3
        t += 1
        cut = t % LIMIT == 0
        with torch.no_grad():
            boot = agent.critic(nxt)[:, 0]  # the value of where the step led, before a reset
        S.append(state), A.append(a), L.append(dist.log_prob(a)), V.append(v), B.append(boot)
        R.append(torch.ones(8)), C.append(cut)
        state = torch.randn(8, 3) if cut else nxt
    adv, gae = [None] * HORIZON, torch.zeros(8)
    for i in reversed(range(HORIZON)):
        mask = 0.0 if C[i] else 1.0
        delta = R[i] + GAMMA * B[i] * (1.0 if HEALTHY else mask) - V[i]
        gae = delta + GAMMA * LAM * mask * gae
        adv[i] = gae
    adv, V = torch.cat(adv), torch.cat(V)
    ret, S, A, L = adv + V, torch.cat(S), torch.cat(A), torch.cat(L)
    adv = (adv - adv.mean()) / (adv.std() + 1e-8)
    for _ in range(4):
        for idx in torch.randperm(len(S)).split(128):
            dist = torch.distributions.Categorical(logits=agent.actor(S[idx]))
            ratio = (dist.log_prob(A[idx]) - L[idx]).exp()
            pg = -torch.min(ratio * adv[idx], ratio.clamp(0.8, 1.2) * adv[idx]).mean()
            v_loss = F.mse_loss(agent.critic(S[idx])[:, 0], ret[idx])
            loss = pg + 0.5 * v_loss - 0.01 * dist.entropy().mean()
            optimizer.zero_grad()
            loss.backward()
            nn.utils.clip_grad_norm_(agent.parameters(), 0.5)
            optimizer.step()
    if update % 20 == 0:
        print(update, round(v_loss.item(), 3))
print("end: mean value", round(V.mean().item(), 2), "(true 20)")
