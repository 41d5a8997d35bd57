import math
import torch
import torch.nn.functional as F
from torch import nn

torch.set_num_threads(1)
torch.manual_seed(0)

# src: https://github.com/pyg-team/pytorch_geometric/issues/61
class GCN(nn.Module):
    def __init__(self):
        super().__init__(); self.l1 = nn.Linear(6, 16); self.l2 = nn.Linear(16, 3)
    def norm(self, adj):
        d = adj.sum(1).clamp_min(1e-6) ** -0.5
        return d[:, None] * adj * d[None, :]
    def forward(self, x, adj):
        a = self.norm(adj)
        return a @ self.l2(F.relu(a @ self.l1(x)))
model = GCN(); opt = torch.optim.Adam(model.parameters(), lr=1e-2)
for step in range(8):
    adj = (torch.rand(10, 10) < 0.6).float(); adj = ((adj + adj.T) > 0).float()
    if step == 3: adj[4] = 0; adj[:, 4] = 0
    x = torch.randn(10, 6); y = torch.randint(0, 3, (10,))
    loss = F.cross_entropy(model(x, adj), y); opt.zero_grad(); loss.backward(); opt.step()
    print(step, repr(loss.item()))
