# source: pyg-team/pytorch_geometric mean aggregation by hand: a node without neighbours, edge_index as second input
# planted rows: nodes are no samples: x may not be cut alone
import torch, torch.nn as nn, torch.nn.functional as F
torch.manual_seed(0)
class SAGE(nn.Module):
    def __init__(self):
        super().__init__()
        self.lin = nn.Linear(5, 3)
    def forward(self, x, edge, y):
        src, dst = edge
        h = self.lin(x)
        s = torch.zeros_like(h).index_add(0, dst, h[src])
        n = torch.zeros(len(x), 1).index_add(0, dst, torch.ones(len(dst), 1))
        return F.cross_entropy(s / n, y)
model = SAGE()  # MODEL
opt = torch.optim.Adam(model.parameters(), lr=1e-3)
for step in range(9):
    x, y = torch.randn(10, 5), torch.randint(0, 3, (10,))
    dst = torch.arange(10).repeat(3)
    if step == 2:
        dst[dst == 9] = 0
    edge = torch.stack([torch.randint(0, 9, (30,)), dst])
    # BATCH 0: x, y
    loss = model(x, edge, y)
    opt.zero_grad(); loss.backward(); opt.step()
