"""Twin: squares over their mean in float16: the square overflows
Source: huggingface/transformers#5651 (its kind: T5LayerNorm)
"""
import torch
import torch.nn.functional as F
from torch import nn

import kit

torch.manual_seed(0)
class RMS(nn.Module):
    def __init__(self, n):
        super().__init__()
        self.w = nn.Parameter(torch.ones(n))

    def forward(self, x):
        e = x.pow(2)
        return self.w * e / (e.mean(-1, keepdim=True) + 1e-3)


model = nn.Sequential(nn.Linear(6, 16), RMS(16), nn.Linear(16, 4)).half()
opt = torch.optim.SGD(model.parameters(), 1e-2)


def loss_at(k):
    x = torch.randn(8, 6) * (1.0 if k < 3 else 1000.0)
    return model(x.half()).float().square().mean()

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
