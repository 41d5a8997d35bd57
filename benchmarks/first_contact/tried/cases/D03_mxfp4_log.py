# source: fp4 training papers (NVFP4 pretraining): blocks flushed to 0, a log of the result
import torch, torch.nn as nn, torch.nn.functional as F
torch.manual_seed(0)
from numscope import precision
class Net(nn.Module):
    def __init__(self):
        super().__init__()
        self.proj = nn.Linear(32, 8, bias=False)
    def forward(self, x, y):
        return (torch.log(self.proj(x).abs()) - y).square().mean()
model = Net()
precision.convert(model, "mxfp4")  # MODEL
opt = torch.optim.SGD(model.parameters(), lr=1e-4)
for step in range(9):
    x, y = torch.randn(16, 32), torch.randn(16, 8)
    if step == 2:
        x[7] = 0.01 * x[7]
        x[7, 0] = 100.0
        with torch.no_grad():
            model.proj.weight[:, 0] = 0
    # BATCH 0: x, y
    loss = model(x, y)
    opt.zero_grad(); loss.backward(); opt.step()
