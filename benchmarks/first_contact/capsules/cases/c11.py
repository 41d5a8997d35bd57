"""L-BFGS with a closure
Source: pytorch/examples time_sequence_prediction
"""
import torch
import torch.nn.functional as F
from torch import nn

import kit

torch.manual_seed(0)
model = nn.Sequential(nn.Linear(6, 8), nn.Tanh(), nn.Linear(8, 1)).double()
opt = torch.optim.LBFGS(model.parameters(), 0.5, max_iter=4)
x, y = torch.randn(16, 6).double(), torch.randn(16, 1).double()

for k in range(6):
    def closure():
        opt.zero_grad()
        loss = F.mse_loss(model(x), y)
        loss.backward()
        return loss

    loss = opt.step(closure)
    print(k, kit.bits(loss), kit.digest(model))
