# source: pyg-team/pytorch_geometric gcn_norm ports: deg.pow(-0.5) without masked_fill of inf
import torch, torch.nn as nn, torch.nn.functional as F
torch.manual_seed(0)
class GCN(nn.Module):
    def __init__(self):
        super().__init__()
        self.lin = nn.Linear(5, 3)
    def forward(self, x, edge, y):
        src, dst = edge
        deg = torch.zeros(len(x)).index_add(0, dst, torch.ones(len(dst)))
        h = self.lin(x)
        out = torch.zeros_like(h).index_add(0, dst, h[src])
        out = out * deg.pow(-1)[:, None]
        return F.cross_entropy(out, y)
model = GCN()  # MODEL
opt = torch.optim.Adam(model.parameters(), lr=1e-3)
for step in range(9):
    x, y = torch.randn(10, 5), torch.randint(0, 3, (10,))
    dst = torch.arange(10).repeat(2)
    if step == 2:
        dst[dst == 6] = 5  # node 6 has no neighbour
    edge = torch.stack([torch.randint(0, 10, (20,)), dst])
    loss = model(x, edge, y)
    opt.zero_grad(); loss.backward(); opt.step()
