# source: NVFP4 pretraining threads: hand-made layer norm without eps after a converted layer
import torch, torch.nn as nn, torch.nn.functional as F
torch.manual_seed(0)
from numscope import precision
class Net(nn.Module):
    def __init__(self):
        super().__init__()
        self.proj, self.head = nn.Linear(32, 32, bias=False), nn.Linear(32, 4)
    def forward(self, x, y):
        h = self.proj(x)
        h = (h - h.mean(-1, keepdim=True)) / h.std(-1, keepdim=True)
        return F.cross_entropy(self.head(h), y)
model = Net()
precision.convert(model, "nvfp4")  # MODEL
opt = torch.optim.AdamW(model.parameters(), lr=1e-3)
for step in range(9):
    x, y = torch.randn(16, 32), torch.randint(0, 4, (16,))
    if step == 2:
        x[2] *= 1e-7
    # BATCH 0: x, y
    loss = model(x, y)
    opt.zero_grad(); loss.backward(); opt.step()
