import math
import torch
import torch.nn.functional as F
from torch import nn

torch.set_num_threads(1)
torch.manual_seed(0)

# src: https://discuss.pytorch.org/t/calculate-loss-between-a-target-in-one-hot-encoded-with-class-probabilities/180148 (range of half); T5-like overflow in a pooled convnet
class Net(nn.Module):
    def __init__(self):
        super().__init__()
        self.c1 = nn.Conv2d(3, 16, 3, padding=1); self.c2 = nn.Conv2d(16, 16, 3, padding=1); self.fc = nn.Linear(16, 4)
    def forward(self, x):
        x = F.relu(self.c1(x)); x = F.relu(self.c2(x))
        e = (x * x).sum((2, 3))
        return self.fc(e / (x.shape[2] * x.shape[3]))
model = Net()
with torch.no_grad(): model.c1.weight *= 12; model.c2.weight *= 2
model = model.bfloat16(); opt = torch.optim.SGD(model.parameters(), lr=1e-6)
for step in range(8):
    n = 8 if step < 3 else 40
    x = torch.rand(2, 3, n, n).bfloat16() * 2; y = torch.randint(0, 4, (2,))
    loss = F.cross_entropy(model(x).float(), y)
    opt.zero_grad(); loss.backward(); opt.step()
    print(step, repr(loss.item()))
