import torch
import torch.nn.functional as F
from torch import nn

torch.manual_seed(0)
from numscope import precision


class Net(nn.Module):
    def __init__(self):
        super().__init__()
        self.proj, self.head = nn.Linear(16, 16, bias=False), nn.Linear(16, 2)
        with torch.no_grad():
            self.proj.weight.copy_(torch.eye(16))

    def forward(self, x):
        h = self.proj(x)
        h = torch.log(h - 0.5 * x)
        return self.head(h)


model = Net()
precision.convert(model, precision.recipe_of('delayed').plan().with_high(['fprop']), layers='proj')
optimizer = torch.optim.SGD(model.parameters(), lr=1e-4)
for step in range(10):
    x = torch.rand(8, 16) + 0.5
    if step == 3:
        x = x * 50
    loss = F.cross_entropy(model(x), torch.randint(0, 2, (8,)))
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()
    print(step, loss.item())
