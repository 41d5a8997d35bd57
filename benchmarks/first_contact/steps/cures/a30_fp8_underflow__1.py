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
        h = h / h.norm(dim=-1, keepdim=True)
        return self.head(h)


model = Net()
precision.convert(model, precision.CurrentScaling(), layers='head')
precision.convert(model, precision.recipe_of('current').plan().with_high(['fprop']), layers='proj')
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
