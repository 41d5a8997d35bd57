import math
import torch
import torch.nn.functional as F
from torch import nn

torch.set_num_threads(1)
torch.manual_seed(0)

# src: https://github.com/Li-Chongyi/Zero-DCE_extension/issues/2
class Seg(nn.Module):
    def __init__(self):
        super().__init__(); self.c1 = nn.Conv2d(1, 8, 3, padding=1); self.c2 = nn.Conv2d(8, 2, 1)
    def forward(self, x, y):
        p = self.c2(F.relu(self.c1(x))).softmax(1).gather(1, y[:, None])
        return ((1 - p) ** 0.5 * -torch.log(p + 1e-6)).mean()
model = Seg(); opt = torch.optim.SGD(model.parameters(), lr=1e-2)
for step in range(8):
    x = torch.randn(2, 1, 8, 8) * (1 if step < 4 else 80); y = torch.randint(0, 2, (2, 8, 8))
    loss = model(x, y); opt.zero_grad(); loss.backward(); opt.step(); print(step, repr(loss.item()))
