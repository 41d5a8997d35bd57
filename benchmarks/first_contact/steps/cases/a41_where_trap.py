import torch
import torch.nn.functional as F
from torch import nn

torch.manual_seed(0)

class Net(nn.Module):
    def __init__(self):
        super().__init__()
        self.net = nn.Linear(8, 8)

    def forward(self, x):
        h = self.net(x).relu()
        return torch.where(h > 0, torch.sqrt(h), h)


model = Net()
optimizer = torch.optim.SGD(model.parameters(), lr=1e-3)
for step in range(6):
    loss = model(torch.randn(8, 8)).sum(-1).mean()
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()
    print(step, loss.item())
