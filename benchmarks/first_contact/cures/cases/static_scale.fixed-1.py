import math
import torch
import torch.nn.functional as F
from torch import nn

torch.set_num_threads(1)
torch.manual_seed(0)

# src: https://github.com/karpathy/nanoGPT/issues/167
class Net(nn.Module):
    def __init__(self):
        super().__init__(); self.c = nn.Conv2d(3, 8, 3); self.n = nn.GroupNorm(2, 8); self.fc = nn.Linear(8 * 36, 10)
    def forward(self, x): return self.fc(F.relu(self.n(self.c(x))).flatten(1))
model = Net().half(); opt = torch.optim.SGD(model.parameters(), lr=1e-3)
SCALE = 2.0 ** 14
for step in range(8):
    x = torch.randn(4, 3, 8, 8).half(); y = torch.randint(0, 10, (4,))
    loss = F.cross_entropy(model(x).float(), y)
    opt.zero_grad(); (loss * SCALE).backward()
    for p in model.parameters(): p.grad /= SCALE
    opt.step(); print(step, repr(loss.item()))
