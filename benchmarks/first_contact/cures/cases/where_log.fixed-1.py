import math
import torch
import torch.nn.functional as F
from torch import nn

torch.set_num_threads(1)
torch.manual_seed(0)

# src: https://github.com/pytorch/pytorch/issues/94700
class Pois(nn.Module):
    def __init__(self):
        super().__init__(); self.f = nn.Sequential(nn.Linear(5, 16), nn.ReLU(), nn.Linear(16, 4))
    def forward(self, x, k):
        r = torch.sigmoid(self.f(x)) * (k > 0)
        ll = torch.where(r > 0, k * torch.log(r.clamp_min(1e-6)), torch.zeros_like(r)) - r
        return -ll.mean()
model = Pois(); opt = torch.optim.Adam(model.parameters(), lr=1e-3)
for step in range(6):
    x = torch.randn(8, 5); k = torch.randint(0, 4, (8, 4)).float()
    loss = model(x, k); opt.zero_grad(); loss.backward(); opt.step(); print(step, repr(loss.item()))
