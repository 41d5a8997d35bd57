# source: NVIDIA/TransformerEngine delayed scaling: the first step's scale 1 flushes small inputs to 0; x / x.norm()
import torch, torch.nn as nn, torch.nn.functional as F
torch.manual_seed(0)
from numscope import precision
class Net(nn.Module):
    def __init__(self):
        super().__init__()
        self.proj, self.head = nn.Linear(16, 16, bias=False), nn.Linear(16, 16)
    def forward(self, x, y):
        h = self.proj(x)
        h = h / h.norm(dim=-1, keepdim=True)
        return (self.head(h) - y).square().mean()
model = Net()
precision.convert(model, "delayed")  # MODEL
opt = torch.optim.SGD(model.parameters(), lr=1e-2)
for step in range(9):
    x, y = torch.randn(16, 16), torch.randn(16, 16)
    if step == 0:
        x[5] *= 1e-4
    # BATCH 0: x, y
    loss = model(x, y)
    opt.zero_grad(); loss.backward(); opt.step()
