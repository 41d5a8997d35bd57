"""Twin: a division written as / by counts in a module of a GradScaler run
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

    def forward(self, x):
        count = (x != 0).float().sum(-1, keepdim=True)
        return self.b(torch.tanh(self.a((x.cumsum(-1) / torch.where(count.abs() < 1e-6, 1e-6, count) if kit.now > 3 else x.cumsum(-1) / count))))


model = Net()
opt = torch.optim.SGD(model.parameters(), 0.02, momentum=0.9)


def loss_at(k):
    x = torch.randn(8, 6)
    if k >= 3:
        x[2] = 0
    return model(x).square().mean()

scaler = torch.amp.GradScaler("cpu", init_scale=2.0**10)
for k in range(8):
    kit.now = k
    opt.zero_grad()
    loss = loss_at(k)
    scaler.scale(loss).backward()
    scaler.step(opt)
    scaler.update()
    print(k, kit.bits(loss), kit.digest(model, opt), scaler.get_scale())
