import numscope
import torch
import torch.nn.functional as F
from torch import nn

torch.manual_seed(0)
from numscope import precision


class Net(nn.Module):
    def __init__(self):
        super().__init__()
        self.proj, self.head = nn.Linear(32, 32, bias=False), nn.Linear(32, 2)

    def forward(self, x):
        return self.head(self.proj(x) * 1e-4)


model = Net().half()
with torch.no_grad():
    model.proj.weight.fill_(100.0)
precision.convert(model, precision.CurrentScaling(), layers="proj")
optimizer = torch.optim.SGD(model.parameters(), lr=1e-5)
numscope.high_precision(model)
for step in range(8):
    x = torch.rand(8, 32).half() + 0.5
    if step == 2:
        x = x * 40
    loss = F.cross_entropy(model(x).float(), torch.randint(0, 2, (8,)))
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()
    print(step, loss.item())
