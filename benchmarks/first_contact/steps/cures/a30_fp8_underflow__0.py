import torch
import torch.nn.functional as F
from torch import nn

torch.manual_seed(0)
from numscope import precision


class Net(nn.Module):
    def __init__(self):
        super().__init__()
        self.proj, self.head = nn.Linear(16, 16, bias=False), nn.Linear(16, 2)

    def forward(self, x):
        h = self.proj(x)
        d = h.norm(dim=-1, keepdim=True)
        h = h / torch.where(d.abs() < 1e-6, 1e-6, d)
        return self.head(h)


model = Net()
precision.convert(model, precision.CurrentScaling())
optimizer = torch.optim.SGD(model.parameters(), lr=1e-3)
for step in range(8):
    x = torch.randn(8, 16)
    if step == 2:
        x[0] *= 1e6
    loss = F.cross_entropy(model(x), torch.randint(0, 2, (8,)))
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()
    print(step, loss.item())
