import torch
import torch.nn.functional as F
from torch import nn

torch.manual_seed(0)

class GCN(nn.Module):
    def __init__(self):
        super().__init__()
        self.first, self.last = nn.Linear(8, 8), nn.Linear(8, 2)

    def forward(self, x, edges):
        d = edges.sum(-1).clamp_min(1e-6) ** (-0.5)
        a = d[:, None] * edges * d[None]
        return self.last(a @ self.first(x).relu())


model = GCN()
optimizer = torch.optim.Adam(model.parameters(), lr=1e-3)
for step in range(8):
    edges = (torch.rand(10, 10) < 0.3).float()
    edges = ((edges + edges.T + torch.eye(10)) > 0).float()
    if step == 2:
        edges[4] = 0
        edges[:, 4] = 0
    loss = F.cross_entropy(model(torch.randn(10, 8), edges), torch.randint(0, 2, (10,)))
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()
    print(step, loss.item())
