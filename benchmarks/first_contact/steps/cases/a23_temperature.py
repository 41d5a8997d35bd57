import torch
import torch.nn.functional as F
from torch import nn

torch.manual_seed(0)

class Head(nn.Module):
    def __init__(self):
        super().__init__()
        self.net, self.temperature = nn.Linear(8, 4), nn.Parameter(torch.zeros(()))

    def forward(self, x):
        return (self.net(x) / self.temperature).log_softmax(-1)


model = Head()
optimizer = torch.optim.SGD(model.parameters(), lr=1e-3)
for step in range(6):
    loss = F.nll_loss(model(torch.randn(8, 8)), torch.randint(0, 4, (8,)))
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()
    print(step, loss.item())
