import math
import torch
import torch.nn.functional as F
from torch import nn

torch.set_num_threads(1)
torch.manual_seed(0)

# src: https://discuss.pytorch.org/t/calculate-loss-between-a-target-in-one-hot-encoded-with-class-probabilities/180148
class Hazard(nn.Module):
    def __init__(self):
        super().__init__(); self.f = nn.Sequential(nn.Linear(3, 16), nn.ReLU(), nn.Linear(16, 1))
    def forward(self, x, t):
        rate = torch.log(1 + torch.exp(self.f(x)))
        return (rate * t - torch.log(rate + 1e-3)).mean()
model = Hazard(); opt = torch.optim.Adam(model.parameters(), lr=1e-3)
with torch.no_grad(): model.f[2].weight.abs_()
for step in range(8):
    x = torch.rand(8, 3) * (1 if step != 4 else 3000); t = torch.rand(8, 1)
    loss = model(x, t); opt.zero_grad(); loss.backward(); opt.step(); print(step, repr(loss.item()))
