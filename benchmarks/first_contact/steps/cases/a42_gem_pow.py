import torch
import torch.nn.functional as F
from torch import nn

torch.manual_seed(0)

class GeM(nn.Module):
    def __init__(self):
        super().__init__()
        self.p = nn.Parameter(torch.tensor(3.0))

    def forward(self, x):
        return F.avg_pool2d(x**self.p, x.shape[-1]).flatten(1) ** (1 / self.p)


model = nn.Sequential(nn.Conv2d(3, 4, 3), nn.ReLU(), GeM(), nn.Linear(4, 2))
optimizer = torch.optim.SGD(model.parameters(), lr=1e-3)
for step in range(8):
    x = torch.randn(6, 3, 6, 6)
    if step == 2:
        x[2] = -100 * model[0].weight.detach()[0].sign().sum((1, 2), keepdim=True)
    loss = F.cross_entropy(model(x), torch.randint(0, 2, (6,)))
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()
    print(step, loss.item())
