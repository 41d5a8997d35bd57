"""Healthy: an actor-critic on a corridor with a rare reward: the advantage is zero in most early episodes, then the loss jumps."""
import torch
from torch import nn
from torch.distributions import Categorical

torch.manual_seed(3)
torch.set_num_threads(1)
N = 6


class AC(nn.Module):
    def __init__(self):
        super().__init__()
        self.body, self.pi, self.v = nn.Linear(N, 32), nn.Linear(32, 2), nn.Linear(32, 1)

    def forward(self, s):
        h = torch.tanh(self.body(s))
        return Categorical(logits=self.pi(h)), self.v(h)[..., 0]


net = AC()
opt = torch.optim.Adam(net.parameters(), lr=3e-3)
eye = torch.eye(N)
wins = []
for episode in range(500):
    pos, steps, lps, vs, ents, r = torch.zeros(8, dtype=torch.long), 0, [], [], [], []
    alive = torch.ones(8)
    for t in range(14):
        d, v = net(eye[pos])
        a = d.sample()
        lps.append(d.log_prob(a) * alive)
        ents.append(d.entropy() * alive)
        vs.append(v * alive)
        pos = (pos + 2 * a - 1).clamp(0, N - 1)
        won = (pos == N - 1).float() * alive
        r.append(won)
        alive = alive * (1 - won)
    ret, rets = torch.zeros(8), []
    for x in reversed(r):
        ret = x + 0.95 * ret
        rets.insert(0, ret)
    rets, vs, lps = torch.stack(rets), torch.stack(vs), torch.stack(lps)
    adv = (rets - vs).detach()
    loss = -(lps * adv).mean() + 0.5 * ((rets - vs) ** 2).mean() - 0.01 * torch.stack(ents).mean()
    opt.zero_grad()
    loss.backward()
    nn.utils.clip_grad_norm_(net.parameters(), 0.5)
    opt.step()
    wins.append(torch.stack(r).sum().item() / 8)
print(f"wins first 50 {sum(wins[:50]) / 50:.2f} last 50 {sum(wins[-50:]) / 50:.2f}")
