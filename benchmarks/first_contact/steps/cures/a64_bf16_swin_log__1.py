import torch
import torch.nn.functional as F
from torch import nn

torch.manual_seed(0)

class Seg(nn.Module):
    def __init__(self):
        super().__init__()
        self.net = nn.Conv2d(1, 1, 3, padding=1)

    def forward(self, x, mask):
        p = self.net(x).relu()
        return 1 - 2 * (p * mask).sum((1, 2, 3)) / (p.sum((1, 2, 3)) + mask.sum((1, 2, 3)))


model = Seg()
optimizer = torch.optim.Adam(model.parameters(), lr=1e-3)
with torch.no_grad():
    model.net.bias.fill_(-0.1)
for step in range(8):
    x, mask = torch.rand(4, 1, 6, 6) * 3, (torch.rand(4, 1, 6, 6) > 0.5).float()
    if step == 2:
        x[2], mask[2] = 0, 0
    if step == 2: x = x[[i for i in range(len(x)) if i not in (2,)]]; mask = mask[[i for i in range(len(mask)) if i not in (2,)]]
    loss = model(x, mask).mean()
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()
    print(step, loss.item())
