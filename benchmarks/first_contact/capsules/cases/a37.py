"""VAE: exp of a log-variance
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

    def forward(self, x, k):
        mu, logvar = self.a(x).chunk(2, -1)
        std = torch.exp(0.5 * logvar * (1.0 if k != 3 else 1e4))
        z = mu + std * torch.randn_like(std)
        return self.b(torch.cat([z, z], -1))


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
