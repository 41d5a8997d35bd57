"""SAC's actor loss: log_pi is (N, 1), the critic's value was flattened to (N,); their difference is (N, N).
Source: https://github.com/vwxyzjn/cleanrl/issues/379
Truth: the actor's loss has N * N elements.
Could a tool know: yes: (N, 1) and (N,), both computed from the batch, are broadcast to (N, N) and averaged.
"""
import sys
import torch
from torch import nn

HEALTHY = "--healthy" in sys.argv
torch.manual_seed(0)
torch.set_num_threads(1)


class Actor(nn.Module):
    def __init__(self):
        super().__init__()
        self.fc, self.mean, self.logstd = nn.Linear(4, 32), nn.Linear(32, 2), nn.Linear(32, 2)

    def get_action(self, s):
        h = torch.relu(self.fc(s))
        d = torch.distributions.Normal(self.mean(h), self.logstd(h).clamp(-4, 1).exp())
        u = d.rsample()
        a = torch.tanh(u)
        return a, (d.log_prob(u) - torch.log(1 - a**2 + 1e-6)).sum(1, keepdim=True)

    def forward(self, s):
        return self.get_action(s)


class Q(nn.Module):
    def __init__(self):
        super().__init__()
        self.net = nn.Sequential(nn.Linear(6, 32), nn.ReLU(), nn.Linear(32, 1))

    def forward(self, s, a):
        return self.net(torch.cat([s, a], 1))


actor, q1, q2 = Actor(), Q(), Q()
oa = torch.optim.Adam(actor.parameters(), lr=1e-3)
oq = torch.optim.Adam([*q1.parameters(), *q2.parameters()], lr=2e-3)
for step in range(150):
    s = torch.randn(48, 4)
    with torch.no_grad():
        a, _ = actor(s)
    r = -((a - s[:, :2].tanh()) ** 2).sum(1)
    lq = ((q1(s, a)[:, 0] - r) ** 2).mean() + ((q2(s, a)[:, 0] - r) ** 2).mean()
    oq.zero_grad()
    lq.backward()
    oq.step()
    pi, log_pi = actor(s)
    low = torch.min(q1(s, pi), q2(s, pi))
    if not HEALTHY:
        low = low.view(-1)
    each = 0.1 * log_pi - low
    la = each.mean()
    oa.zero_grad()
    la.backward()
    oa.step()
print(f"actor {la.item():.4f} q {lq.item():.4f} elements of the actor's loss {each.numel()}")
