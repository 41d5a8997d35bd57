import torch
import torch.nn.functional as F
from torch import nn

torch.manual_seed(0)

class Sinkhorn(nn.Module):
    def __init__(self):
        super().__init__()
        self.net = nn.Linear(4, 4)

    def forward(self, x, y):
        cost = (self.net(x)[:, None] - y[None]).square().sum(-1)
        k = torch.exp(-cost / 0.5)
        u = torch.ones(x.shape[0])
        for _ in range(3):
            v = 1 / (k.T @ u)
            d = k @ v
            u = 1 / torch.where(d.abs() < 1e-6, 1e-6, d)
        return (u[:, None] * k * v[None] * cost).sum()


model = Sinkhorn()
optimizer = torch.optim.SGD(model.parameters(), lr=1e-4)
for step in range(8):
    x, y = 0.5 * torch.randn(6, 4), 0.5 * torch.randn(6, 4)
    if step == 2:
        x[2] = 500.0
    loss = model(x, y)
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()
    print(step, loss.item())
