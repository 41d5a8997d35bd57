import math
import torch
import torch.nn.functional as F
from torch import nn

torch.set_num_threads(1)
torch.manual_seed(0)

# src: https://github.com/TFboys-lzz/MPSCL/issues/2
class PINN(nn.Module):
    def __init__(self):
        super().__init__(); self.net = nn.Sequential(nn.Linear(1, 16), nn.Tanh(), nn.Linear(16, 1))
        with torch.no_grad(): self.net[2].bias.fill_(0.9)
    def forward(self, x):
        x = x.requires_grad_()
        u = self.net(x); du, = torch.autograd.grad(u.sum(), x, create_graph=True)
        flux = u.pow(1.5) * du       # porous medium
        d2, = torch.autograd.grad(flux.sum(), x, create_graph=True)
        return (d2 ** 2).mean()
model = PINN(); opt = torch.optim.SGD(model.parameters(), lr=1e-3)
for step in range(10):
    x = torch.rand(16, 1) if step < 6 else torch.rand(16, 1) * 20 - 10
    loss = model(x); opt.zero_grad(); loss.backward(); opt.step()
    print(step, repr(loss.item()))
