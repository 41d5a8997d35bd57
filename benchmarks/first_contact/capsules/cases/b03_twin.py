"""Twin: log(1 - sigmoid) under bfloat16 autocast
Source: gnn-tracking/gnn_tracking#138 (its kind)
"""
import torch
import torch.nn.functional as F
from torch import nn

import kit

torch.manual_seed(0)
class Gate(nn.Module):
    def __init__(self):
        super().__init__()
        self.f = nn.Linear(16, 16)

    def forward(self, x):
        p = torch.sigmoid(self.f(x))
        return torch.log(1 - p)


model = nn.Sequential(nn.Linear(6, 16), Gate(), nn.Linear(16, 4))
opt = torch.optim.SGD(model.parameters(), 1e-3)


def loss_at(k):
    x = torch.randn(16, 6) * (1.0 if k < 3 else 12.0)
    with torch.autocast("cpu", dtype=torch.bfloat16):
        out = model(x)
    return out.float().square().mean()

for k in range(8):
    kit.now = k
    if k == 4:
        import numscope

        numscope.high_precision(model[1])
    opt.zero_grad()
    loss = loss_at(k)
    loss.backward()
    if k != 3:
        opt.step()
    print(k, kit.bits(loss), kit.digest(model, opt))
