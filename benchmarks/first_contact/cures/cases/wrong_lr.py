import math
import torch
import torch.nn.functional as F
from torch import nn

torch.set_num_threads(1)
torch.manual_seed(0)

# src: https://github.com/volflow/DeFlow/issues/4
model = nn.Sequential(nn.Conv2d(1, 8, 3), nn.ReLU(), nn.Conv2d(8, 8, 3), nn.ReLU(), nn.Flatten(), nn.Linear(8 * 16, 1))
opt = torch.optim.SGD(model.parameters(), lr=30.0)
for step in range(12):
    x = torch.randn(4, 1, 8, 8); loss = F.mse_loss(model(x), torch.ones(4, 1))
    opt.zero_grad(); loss.backward(); opt.step(); print(step, repr(loss.item()))
