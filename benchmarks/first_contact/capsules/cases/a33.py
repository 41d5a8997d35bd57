"""a float16 feed-forward overflows as T5's wo
Source: huggingface/transformers#5651
"""
import torch
import torch.nn.functional as F
from torch import nn

import kit

torch.manual_seed(0)
class FF(nn.Module):
    def __init__(self):
        super().__init__()
        self.wi, self.wo = nn.Linear(6, 64), nn.Linear(64, 4)

    def forward(self, x):
        return self.wo(F.relu(self.wi(x)))


model = FF()
with torch.no_grad():
    model.wo.weight.mul_(40)
model = model.half()
opt = torch.optim.SGD(model.parameters(), 1e-4)


def loss_at(k):
    x = (torch.randn(8, 6) * (1.0 if k != 3 else 8e3)).half()
    return model(x).float().square().mean()

for k in range(5):
    opt.zero_grad()
    loss = loss_at(k)
    loss.backward()
    opt.step()
    print(k, kit.bits(loss), kit.digest(model, opt))
