# source: fp8 forum threads: two inputs that e4m3 can't tell apart, divided by their difference
import torch, torch.nn as nn, torch.nn.functional as F
torch.manual_seed(0)
from numscope import precision
class Net(nn.Module):
    def __init__(self):
        super().__init__()
        self.proj = nn.Linear(16, 8, bias=False)
    def forward(self, a, b, y):
        d = self.proj(a) - self.proj(b)
        return (1e-3 / d.abs().sum(-1) - y).square().mean()
model = Net()
precision.convert(model, "current")  # MODEL
opt = torch.optim.SGD(model.parameters(), lr=1e-5)
for step in range(9):
    x, b, y = torch.randn(16, 16), torch.randn(16, 16), torch.rand(16)
    if step == 2:
        x[6] = x[6].to(torch.float8_e4m3fn).float()
        x[6, 0] = 3.0
        x[0, 0], b[0, 0] = 50.0, 50.0
        b[6] = x[6] * (1 + 1e-6)
    # BATCH 0: x, b, y
    loss = model(x, b, y)
    opt.zero_grad(); loss.backward(); opt.step()
