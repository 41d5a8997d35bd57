"""log beside batch norm: buffers go back
Source: HobbitLong/SupContrast#104
"""
import torch
import torch.nn.functional as F
from torch import nn

import kit

torch.manual_seed(0)
class Net(nn.Module):
    def __init__(self):
        super().__init__()
        self.a, self.n, self.b = nn.Linear(6, 8), nn.BatchNorm1d(8), nn.Linear(8, 4)

    def forward(self, x):
        h = F.relu(self.n(self.a(x))) + (0.1 if kit.now < 3 else 0)
        return self.b(torch.log(h))


model = Net()
opt = torch.optim.AdamW(model.parameters(), 1e-3)


def loss_at(k):
    return model(torch.randn(8, 6)).square().mean()

for k in range(8):
    kit.now = k
    opt.zero_grad()
    loss = loss_at(k)
    loss.backward()
    opt.step()
    print(k, kit.bits(loss), kit.digest(model, opt))
