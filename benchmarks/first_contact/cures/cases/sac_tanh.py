import math
import torch
import torch.nn.functional as F
from torch import nn

torch.set_num_threads(1)
torch.manual_seed(0)

# src: https://github.com/vwxyzjn/cleanrl/issues/428
class Actor(nn.Module):
    def __init__(self):
        super().__init__(); self.b = nn.Linear(5, 16); self.mu = nn.Linear(16, 2); self.ls = nn.Linear(16, 2)
    def forward(self, s):
        h = F.relu(self.b(s)); d = torch.distributions.Normal(self.mu(h), self.ls(h).clamp(-5, 2).exp())
        u = d.rsample(); a = torch.tanh(u)
        logp = d.log_prob(u) - torch.log(1 - a.pow(2))
        return a, logp.sum(1)
actor = Actor(); opt = torch.optim.Adam(actor.parameters(), lr=1e-3)
for step in range(9):
    s = torch.randn(8, 5) * (1 if step != 4 else 40)
    a, lp = actor(s); loss = (0.2 * lp + (a ** 2).sum(1)).mean(); opt.zero_grad(); loss.backward(); opt.step()
    print(step, repr(loss.item()))
