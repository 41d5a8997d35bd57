import torch
import torch.nn.functional as F
from torch import nn


class Net(nn.Module):
    def __init__(self):
        super().__init__()
        self.image, self.text, self.logit_scale = nn.Linear(8, 4), nn.Linear(8, 4), nn.Parameter(torch.tensor(100.0))

    def forward(self, x, y):
        return F.normalize(self.image(x)) @ F.normalize(self.text(y)).T * torch.exp(self.logit_scale)


torch.manual_seed(0)
model = Net()
optimizer = torch.optim.SGD(model.parameters(), lr=1e-4)
for step in range(6):
    loss = F.cross_entropy(model(torch.randn(4, 8), torch.randn(4, 8)), torch.arange(4))
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()
    print(step, loss.item())
