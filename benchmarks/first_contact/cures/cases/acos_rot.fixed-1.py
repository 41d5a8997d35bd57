import math
import torch
import torch.nn.functional as F
from torch import nn

torch.set_num_threads(1)
torch.manual_seed(0)

# src: https://discuss.pytorch.org/t/nan-gradient-for-torch-cos-torch-acos/9617
class Angle(nn.Module):
    def __init__(self):
        super().__init__(); self.enc = nn.Linear(6, 3, bias=False)
    def forward(self, x, y):
        a, b = self.enc(x), self.enc(y)
        c = (a * b).sum(1) / (a.norm(dim=1) * b.norm(dim=1))
        return torch.acos(c.clamp(-1, 1).clamp(-1 + 1e-6, 1 - 1e-6))
model = Angle(); opt = torch.optim.SGD(model.parameters(), lr=1e-2)
for step in range(8):
    x, y = torch.randn(8, 6), torch.randn(8, 6)
    if step == 5: y = x.clone()
    loss = model(x, y).mean(); opt.zero_grad(); loss.backward(); opt.step()
    print(step, repr(loss.item()))
