import math
import torch
import torch.nn.functional as F
from torch import nn

torch.set_num_threads(1)
torch.manual_seed(0)

# src: https://github.com/akanazawa/cmr/issues/11 (sqrt at 0), in autocast bfloat16
class Norm(nn.Module):
    def forward(self, x):
        m = x.mean(-1, keepdim=True); v = (x * x).mean(-1, keepdim=True) - m * m
        return (x - m) / (lambda y: torch.where(y.abs() < 0.01, 0.01, y))(torch.sqrt(v))
model = nn.Sequential(nn.Linear(8, 16), Norm(), nn.ReLU(), nn.Linear(16, 16), Norm(), nn.Linear(16, 3)).bfloat16()
opt = torch.optim.SGD(model.parameters(), lr=1e-3)
for step in range(8):
    x = torch.randn(6, 8).bfloat16(); y = torch.randint(0, 3, (6,))
    with torch.no_grad():
        if step == 3: model[0].bias += 300.      # a drifting mean: E[x^2] - E[x]^2 cancels
    loss = F.cross_entropy(model(x).float(), y); opt.zero_grad(); loss.backward(); opt.step(); print(step, repr(loss.item()))
