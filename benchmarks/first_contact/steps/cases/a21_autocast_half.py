import torch
import torch.nn.functional as F
from torch import nn

torch.manual_seed(0)

class Net(nn.Module):
    def __init__(self):
        super().__init__()
        self.first, self.mid, self.last = nn.Linear(16, 64), nn.Linear(64, 64), nn.Linear(64, 4)

    def forward(self, x):
        h = self.first(x).relu()
        h = self.mid(h)
        return self.last(h.float() * 1e-5)


model = Net()
optimizer = torch.optim.SGD(model.parameters(), lr=1e-3)
for step in range(8):
    x = torch.randn(8, 16)
    if step == 2:
        x *= 2e5
    with torch.autocast("cpu", dtype=torch.float16):
        out = model(x.clamp(-6e4, 6e4))
    loss = out.float().square().mean()
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()
    print(step, loss.item())
