import torch
import torch.nn.functional as F
from torch import nn

torch.manual_seed(0)

class MDN(nn.Module):
    def __init__(self):
        super().__init__()
        self.net = nn.Linear(4, 9)

    def forward(self, x, y):
        pi, mu, sigma = self.net(x).chunk(3, -1)
        pi, sigma = pi.softmax(-1), F.softplus(sigma) + 0.1
        pdf = torch.exp(-0.5 * ((y - mu) / sigma) ** 2) / sigma
        return -torch.log((pi * pdf).sum(-1))


model = MDN()
optimizer = torch.optim.Adam(model.parameters(), lr=1e-3)
for step in range(8):
    x = torch.randn(8, 4)
    y = x[:, :1] + 0.1 * torch.randn(8, 1)
    if step == 2:
        y[2] = 300.0
    if step == 2: x = x[[i for i in range(len(x)) if i not in (2,)]]; y = y[[i for i in range(len(y)) if i not in (2,)]]
    loss = model(x, y).mean()
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()
    print(step, loss.item())
