import torch
import torch.nn.functional as F
from torch import nn

torch.manual_seed(0)

class Triplet(nn.Module):
    def __init__(self):
        super().__init__()
        self.net = nn.Linear(8, 4)

    def forward(self, a, p, n):
        a, p, n = self.net(a), self.net(p), self.net(n)
        near = torch.sqrt(((a - p) ** 2).sum(-1))
        far = torch.sqrt(((a - n) ** 2).sum(-1))
        return (near - far + 1).clamp_min(0)


model = Triplet()
optimizer = torch.optim.Adam(model.parameters(), lr=1e-3)
for step in range(8):
    a, p, n = torch.randn(8, 8), torch.randn(8, 8), torch.randn(8, 8)
    if step == 2:
        p[1] = a[1]
        n[1] = a[1] + 0.01
    loss = model(a, p, n).mean()
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()
    print(step, loss.item())
