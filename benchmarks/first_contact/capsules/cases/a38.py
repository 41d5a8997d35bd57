"""sqrt's gradient at 0 within the model (a distance)
Source: jax-ml/jax#21723 (its kind)
"""
import torch
import torch.nn.functional as F
from torch import nn

import kit

torch.manual_seed(0)
class Net(nn.Module):
    def __init__(self):
        super().__init__()
        self.a, self.b = nn.Linear(6, 8), nn.Linear(8, 4)

    def forward(self, x, k):
        h = self.a(x)
        if k == 3:
            h = h * 0
        r = (h**2).sum(-1, keepdim=True).sqrt()
        return self.b(h / (r + 1))


model = Net()
opt = torch.optim.SGD(model.parameters(), 0.02)


def loss_at(k):
    return model(torch.randn(8, 6), k).square().mean()

for k in range(5):
    opt.zero_grad()
    loss = loss_at(k)
    loss.backward()
    opt.step()
    print(k, kit.bits(loss), kit.digest(model, opt))
