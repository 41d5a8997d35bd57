# source: gradient normalization hooks (GradNorm, LARS ports) on a dgrad that e5m2 flushes to 0
import torch, torch.nn as nn, torch.nn.functional as F
torch.manual_seed(0)
from numscope import precision
class Net(nn.Module):
    def __init__(self):
        super().__init__()
        self.a, self.b = nn.Linear(16, 16), nn.Linear(16, 16)
    def forward(self, x, y, gain):
        h = self.a(x)
        h.register_hook(lambda g: g / g.norm(dim=-1, keepdim=True))
        return ((self.b(torch.tanh(h)) - y).square().sum(-1) * gain).mean()
model = Net()
precision.convert(model, "current")  # MODEL
opt = torch.optim.SGD(model.parameters(), lr=1e-3)
for step in range(9):
    x, y, gain = torch.randn(16, 16), torch.randn(16, 16), torch.ones(16)
    if step == 2:
        gain[4] = 1e-12
    # BATCH 0: x, y, gain
    loss = model(x, y, gain)
    opt.zero_grad(); loss.backward(); opt.step()
