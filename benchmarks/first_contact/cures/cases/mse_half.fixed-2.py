import math
import torch
import torch.nn.functional as F
from torch import nn

torch.set_num_threads(1)
torch.manual_seed(0)

# src: https://github.com/karpathy/nanoGPT/issues/167 (float16); a regression whose loss lies outside and is float16
class Reg(nn.Module):
    def __init__(self):
        super().__init__(); self.a = nn.Linear(6, 32); self.b = nn.Linear(32, 6)
    def forward(self, x):
        h = self.a(x); h = h.clamp_min(0.01) ** 3
        return self.b(h * 0.01)
model = Reg().half(); opt = torch.optim.SGD(model.parameters(), lr=1e-7)
for step in range(8):
    x = torch.randn(5, 6).half()
    if step == 3: x[1] = x[1] * 40
    loss = F.mse_loss(model(x), x); opt.zero_grad(); loss.backward(); opt.step(); print(step, repr(loss.item()))
