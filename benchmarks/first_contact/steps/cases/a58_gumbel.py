import torch
import torch.nn.functional as F
from torch import nn

torch.manual_seed(0)

class Choice(nn.Module):
    def __init__(self):
        super().__init__()
        self.net = nn.Linear(8, 4)

    def forward(self, x, u):
        return ((self.net(x) - torch.log(-torch.log(u))) / 0.5).softmax(-1)


model = Choice()
optimizer = torch.optim.Adam(model.parameters(), lr=1e-3)
for step in range(8):
    x, u = torch.randn(8, 8), torch.rand(8, 4) * 0.98 + 0.01
    if step == 2:
        u[2, 1] = 1.0
    loss = (model(x, u) * torch.arange(4.0)).sum(-1).mean()
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()
    print(step, loss.item())
