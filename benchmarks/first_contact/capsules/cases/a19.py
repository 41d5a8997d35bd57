"""log-likelihood by hand, the variance underflows to 0
Source: ethanhe42/KL-Loss#4
"""
import torch
import torch.nn.functional as F
from torch import nn

import kit

torch.manual_seed(0)
model = nn.Sequential(nn.Linear(6, 16), nn.Tanh(), nn.Linear(16, 4))
opt = torch.optim.SGD(model.parameters(), 0.05, momentum=0.9)

def nll(mu, log_std, y):
    var = torch.exp(2 * log_std)
    return ((y - mu) ** 2 / (2 * var) + log_std).mean()


def loss_at(k):
    out = model(torch.randn(8, 6))
    mu, log_std = out[:, :2], out[:, 2:]
    return nll(mu, log_std - (60.0 if k == 3 else 0.0), torch.randn(8, 2))

for k in range(5):
    opt.zero_grad()
    loss = loss_at(k)
    loss.backward()
    opt.step()
    print(k, kit.bits(loss), kit.digest(model, opt))
