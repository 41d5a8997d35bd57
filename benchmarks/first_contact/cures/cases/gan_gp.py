import math
import torch
import torch.nn.functional as F
from torch import nn

torch.set_num_threads(1)
torch.manual_seed(0)

# src: https://github.com/irfanICMLL/structure_knowledge_distillation/issues/21
class Critic(nn.Module):
    def __init__(self):
        super().__init__(); self.net = nn.Sequential(nn.Linear(6, 16), nn.ReLU(), nn.Linear(16, 1))
    def forward(self, x, gp=False):
        if not gp: return self.net(x)
        x = x.detach().requires_grad_()
        g, = torch.autograd.grad(self.net(x).sum(), x, create_graph=True)
        n = torch.sqrt((g ** 2).sum(1))
        return ((n - 1) ** 2).mean()
c = Critic()
with torch.no_grad(): c.net[0].bias.fill_(-0.3)
opt = torch.optim.Adam(c.parameters(), lr=1e-4)
for step in range(8):
    real, fake = torch.randn(8, 6) + 2, torch.randn(8, 6) * 2
    mid = 0.5 * (real + fake)
    if step == 3: mid[2] = 0       # here no unit is alive
    loss = c(fake).mean() - c(real).mean() + 10 * c(mid, gp=True)
    opt.zero_grad(); loss.backward(); opt.step()
    print(step, repr(loss.item()))
