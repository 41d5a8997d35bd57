import torch
import torch.nn.functional as F
from torch import nn

torch.manual_seed(0)

class Decay(nn.Module):
    def __init__(self):
        super().__init__()
        self.cell, self.rate, self.head = nn.GRUCell(4, 8), nn.Linear(1, 8), nn.Linear(8, 1)

    def forward(self, x, gaps):
        h = torch.zeros(x.shape[0], 8)
        for t in range(x.shape[1]):
            h = h * torch.exp((-self.rate(gaps[:, t, None])).clamp(-22, 22))
            h = self.cell(x[:, t], h)
        return self.head(h)


model = Decay()
optimizer = torch.optim.Adam(model.parameters(), lr=1e-3)
for step in range(8):
    x, gaps = torch.randn(6, 5, 4), torch.rand(6, 5)
    if step == 2:
        gaps[3, 2] = 900.0
    loss = model(x, gaps).square().mean()
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()
    print(step, loss.item())
