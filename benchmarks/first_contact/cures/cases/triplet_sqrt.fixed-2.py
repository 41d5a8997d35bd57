import math
import torch
import torch.nn.functional as F
from torch import nn

torch.set_num_threads(1)
torch.manual_seed(0)

# src: https://github.com/tensorflow/tensorflow/issues/30199
class Net(nn.Module):
    def __init__(self):
        super().__init__(); self.body = nn.Sequential(nn.Conv1d(1, 8, 3), nn.ReLU(), nn.Flatten(), nn.Linear(8 * 10, 8))
    def forward(self, a, p, n):
        a, p, n = self.body(a), self.body(p), self.body(n)
        dp = ((a - p) ** 2).sum(1).add(1e-6).sqrt(); dn = ((a - n) ** 2).sum(1).add(1e-6).sqrt()
        return F.relu(dp - dn + 1).mean()
model = Net(); opt = torch.optim.Adam(model.parameters(), lr=1e-3)
for step in range(8):
    a, p, n = (torch.randn(6, 1, 12) for _ in range(3))
    if step == 4: p[2] = a[2]
    loss = model(a, p, n); opt.zero_grad(); loss.backward(); opt.step()
    print(step, repr(loss.item()))
