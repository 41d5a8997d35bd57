"""GCN's degree to the power -0.5
Source: pyg-team/pytorch_geometric#61
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
        adj = (torch.rand(8, 8) > 0.5).float() + torch.eye(8)
        if k == 2:
            adj[3] = 0
        d = adj.sum(1).pow(-0.5)
        return self.b((d[:, None] * adj * d) @ self.a(x))


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
