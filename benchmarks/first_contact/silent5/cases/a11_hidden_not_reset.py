import sys, math, copy
import torch, torch.nn as nn, torch.nn.functional as F
torch.set_num_threads(1)
torch.manual_seed(0)
HEALTHY = "--healthy" in sys.argv


def report(*modules):
    s = sum(p.detach().double().abs().sum().item() for m in modules for p in m.state_dict().values())
    print("weights", repr(s))


# extreme-parkour 12: the recurrent state goes on over the ends of episodes
class Policy(nn.Module):
    def __init__(self):
        super().__init__()
        self.cell, self.head = nn.GRUCell(6, 24), nn.Linear(24, 2)

    def forward(self, obs, h):
        h = self.cell(obs, h)
        return self.head(h), h


net = Policy()
opt = torch.optim.Adam(net.parameters(), lr=2e-3)
E = 8
h = torch.zeros(E, 24)
goal = torch.randn(E, 6)
age = torch.zeros(E, dtype=torch.long)
for it in range(100):
    h = h.detach()
    loss = 0.0
    for t in range(8):
        obs = torch.where((age == 0)[:, None], goal, torch.randn(E, 6))
        out, h = net(obs, h)
        loss = loss + F.cross_entropy(out, (goal[:, 0] > 0).long()) / 8
        age += 1
        done = (age >= 5) | (torch.rand(E) < 0.1)
        if done.any():
            goal = torch.where(done[:, None], torch.randn(E, 6), goal)
            age[done] = 0
            if HEALTHY:
                h = h * (~done).float()[:, None]
    opt.zero_grad()
    loss.backward()
    opt.step()
    if it % 20 == 0:
        print(it, loss.item())
report(net)
