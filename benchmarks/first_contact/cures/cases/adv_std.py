import math
import torch
import torch.nn.functional as F
from torch import nn

torch.set_num_threads(1)
torch.manual_seed(0)

# src: https://github.com/sidhantls/ppo_lightning/issues/7
class Policy(nn.Module):
    def __init__(self):
        super().__init__(); self.pi = nn.Sequential(nn.Linear(4, 16), nn.Tanh(), nn.Linear(16, 2)); self.v = nn.Linear(4, 1)
    def forward(self, s, a, ret):
        logp = self.pi(s).log_softmax(1).gather(1, a[:, None])[:, 0]
        adv = ret - self.v(s)[:, 0]
        loss_v = (adv ** 2).mean()
        adv = (adv - adv.mean()) / (adv.std() + 1e-8)
        return -(logp * adv.detach()).mean() + loss_v
model = Policy(); opt = torch.optim.Adam(model.parameters(), lr=1e-3)
for step in range(9):
    n = 1 if step == 4 else 6        # an episode of one step
    s = torch.randn(n, 4); a = torch.randint(0, 2, (n,)); ret = torch.randn(n)
    loss = model(s, a, ret); opt.zero_grad(); loss.backward(); opt.step()
    print(step, repr(loss.item()))
