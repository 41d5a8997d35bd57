"""mean over a node's neighbours: a node without any
Source: MrLeeeee/GCN-GAT-and-Graphsage#3
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
        src = torch.randint(0, 8, (20,))
        dst = torch.randint(0, 8 if k < 2 else 4, (20,)) if k == 2 else torch.arange(20) % 8
        h = self.a(x)
        agg = torch.zeros_like(h).index_add(0, dst, h[src])
        deg = torch.zeros(8).index_add(0, dst, torch.ones(20))
        return self.b(agg / deg[:, None])


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
