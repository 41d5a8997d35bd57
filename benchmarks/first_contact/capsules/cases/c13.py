"""spectral norm: power iteration in the forward
Source: SNGAN, torch.nn.utils.parametrizations
"""
import torch
import torch.nn.functional as F
from torch import nn

import kit

torch.manual_seed(0)
sn = nn.utils.parametrizations.spectral_norm
model = nn.Sequential(sn(nn.Linear(6, 16)), nn.ReLU(), nn.utils.parametrizations.weight_norm(nn.Linear(16, 4)))
opt = torch.optim.Adam(model.parameters(), 1e-2)

def loss_at(k):
    return F.cross_entropy(model(torch.randn(8, 6)), torch.randint(0, 4, (8,)))

for k in range(7):
    kit.now = k
    opt.zero_grad()
    loss = loss_at(k)
    loss.backward()
    opt.step()
    print(k, kit.bits(loss), kit.digest(model, opt))
