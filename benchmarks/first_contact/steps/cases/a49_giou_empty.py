import torch
import torch.nn.functional as F
from torch import nn

torch.manual_seed(0)

class Boxes(nn.Module):
    def __init__(self):
        super().__init__()
        self.net = nn.Linear(8, 4)

    def forward(self, x, target):
        box = self.net(x).sigmoid() * target[:, 2:].repeat(1, 2)
        lo, hi = torch.maximum(box[:, :2], target[:, :2]), torch.minimum(box[:, 2:], target[:, 2:])
        inter = (hi - lo).clamp_min(0).prod(-1)
        area = (target[:, 2:] - target[:, :2]).prod(-1) + (box[:, 2:] - box[:, :2]).clamp_min(0).prod(-1)
        return 1 - inter / (area - inter)


model = Boxes()
optimizer = torch.optim.SGD(model.parameters(), lr=1e-2)
for step in range(8):
    x, target = torch.randn(8, 8), torch.rand(8, 4) * 0.3
    target[:, 2:] += 0.5
    if step == 2:
        target[4] = 0
    loss = model(x, target).mean()
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()
    print(step, loss.item())
