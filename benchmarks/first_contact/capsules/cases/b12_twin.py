"""Twin: exp overflows
Source: AntixK/PyTorch-VAE#16
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

    def forward(self, x):
        h = self.a(x) * (1 if kit.now < 3 else 500)
        return self.b((torch.exp(h.clamp(-22, 22)) / (1 + torch.exp(h.clamp(-22, 22))) if kit.now > 3 else torch.exp(h) / (1 + torch.exp(h))))


model = Net()
opt = torch.optim.SGD(model.parameters(), 0.02, momentum=0.9)


def loss_at(k):
    x = torch.randn(8, 6)
    if k >= 3:
        x[2] = 0
    return model(x).square().mean()

for k in range(8):
    kit.now = k
    opt.zero_grad()
    loss = loss_at(k)
    loss.backward()
    if k != 3:
        opt.step()
    print(k, kit.bits(loss), kit.digest(model, opt))
