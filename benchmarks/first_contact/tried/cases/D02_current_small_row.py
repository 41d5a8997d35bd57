# source: pytorch/ao#3356 (a row of zeros under float8), huggingface/kernels-community#681
import torch, torch.nn as nn, torch.nn.functional as F
torch.manual_seed(0)
from numscope import precision
class Net(nn.Module):
    def __init__(self):
        super().__init__()
        self.up, self.down = nn.Linear(16, 32, bias=False), nn.Linear(32, 16, bias=False)
    def forward(self, x, y):
        h = self.up(x)
        h = h * torch.rsqrt(h.pow(2).mean(-1, keepdim=True))
        return (self.down(F.silu(h)) - y).square().mean()
model = Net()
precision.convert(model, "current")  # MODEL
opt = torch.optim.AdamW(model.parameters(), lr=1e-3)
for step in range(9):
    x, y = torch.randn(16, 16), torch.randn(16, 16)
    if step == 2:
        x[3] *= 1e-7
    # BATCH 0: x, y
    loss = model(x, y)
    opt.zero_grad(); loss.backward(); opt.step()
