import math
import torch
import torch.nn.functional as F
from torch import nn

torch.set_num_threads(1)
torch.manual_seed(0)

# src: https://github.com/VincentStimper/normalizing-flows/issues/73 (with checkpointing and dropout)
from torch.utils.checkpoint import checkpoint
class Blk(nn.Module):
    def __init__(self):
        super().__init__(); self.g = nn.Linear(16, 16); self.v = nn.Linear(16, 16); self.d = nn.Dropout(0.2)
    def forward(self, x):
        return x + self.d(self.v(x)) / (torch.exp(self.g(x).clamp(-22, 22)) + torch.exp((-self.g(x)).clamp(-22, 22)))
class Net(nn.Module):
    def __init__(self):
        super().__init__(); self.e = nn.Linear(4, 16); self.b = nn.ModuleList(Blk() for _ in range(2)); self.o = nn.Linear(16, 2)
    def forward(self, x):
        x = self.e(x)
        for b in self.b: x = checkpoint(b, x, use_reentrant=False)
        return self.o(x)
model = Net(); opt = torch.optim.Adam(model.parameters(), lr=1e-3)
for step in range(8):
    x = torch.randn(8, 4); y = torch.randint(0, 2, (8,))
    if step == 4: x[0] *= 600
    loss = F.cross_entropy(model(x), y); opt.zero_grad(); loss.backward(); opt.step(); print(step, repr(loss.item()))
