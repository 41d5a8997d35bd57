"""complex logarithm of a spectrum that is 0
Source: invented (complex)
"""
import torch
import torch.nn.functional as F
from torch import nn

import kit

torch.manual_seed(0)
model = nn.Sequential(nn.Linear(6, 16), nn.Tanh(), nn.Linear(16, 4))
opt = torch.optim.SGD(model.parameters(), 0.05, momentum=0.9)

def loss_at(k):
    out = model(torch.randn(8, 6))
    s = torch.fft.rfft(out * (1.0 if k != 3 else 0.0), dim=1)
    return torch.log(s).abs().mean()

for k in range(5):
    opt.zero_grad()
    loss = loss_at(k)
    loss.backward()
    opt.step()
    print(k, kit.bits(loss), kit.digest(model, opt))
