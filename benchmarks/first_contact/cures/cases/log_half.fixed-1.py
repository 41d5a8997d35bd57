import math
import torch
import torch.nn.functional as F
from torch import nn

torch.set_num_threads(1)
torch.manual_seed(0)

# src: https://foreai.co/blog/nans-out-of-nowhere-the-trick-that-saved-my-training-run
class Clf(nn.Module):
    def __init__(self):
        super().__init__(); self.c = nn.Conv1d(2, 8, 3, padding=1); self.fc = nn.Linear(8, 5)
    def forward(self, x, y):
        p = self.fc(F.relu(self.c(x)).mean(2)).softmax(-1)
        return -(torch.log(p.clamp_min(1e-6)) * F.one_hot(y, 5)).sum(1).mean()
model = Clf().half(); opt = torch.optim.SGD(model.parameters(), lr=1e-2)
for step in range(8):
    x = torch.randn(6, 2, 12).half(); y = torch.randint(0, 5, (6,))
    if step == 4: x[2] *= 150
    loss = model(x, y); opt.zero_grad(); loss.backward(); opt.step(); print(step, repr(loss.item()))
