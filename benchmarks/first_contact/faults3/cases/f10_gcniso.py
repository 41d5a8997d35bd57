"""Dense GCN for graph classification; a molecule has an atom without bonds, and no self loops are added.
Source: pyg-team/pytorch_geometric#61, mlx-graphs/mlx-graphs#18, biomed-AI/Hist2ST#7."""
import sys, math
import torch
from torch import nn
import torch.nn.functional as F

torch.set_num_threads(1)
torch.manual_seed(10)
CURED = "--cured" in sys.argv


def normalize(adj):
    deg = adj.sum(-1)
    inv = deg.pow(-0.5)  # FAULT
    if CURED:
        inv = inv.masked_fill(inv == float("inf"), 0.0)
    return inv[:, :, None] * adj * inv[:, None, :]


class GCN(nn.Module):
    def __init__(self, feats=8, width=32, layers=3):
        super().__init__()
        dims = [feats] + [width] * layers
        self.layers = nn.ModuleList(nn.Linear(a, b) for a, b in zip(dims, dims[1:]))
        self.norm = nn.LayerNorm(width)
        self.out = nn.Linear(width, 2)

    def forward(self, x, adj):
        adj = normalize(adj)
        for layer in self.layers:
            x = F.relu(adj @ layer(x))
        return self.out(self.norm(x.mean(1)))


def graphs(batch, nodes=10):
    upper = torch.triu((torch.rand(batch, nodes, nodes) < 0.4).float(), 1)
    path = torch.diag(torch.ones(nodes - 1), 1).expand(batch, -1, -1)
    adj = torch.maximum(upper, path)
    return adj + adj.transpose(1, 2)


model = GCN()
opt = torch.optim.AdamW(model.parameters(), lr=2e-3, weight_decay=1e-4)
losses = []
for epoch in range(3):
    for it in range(6):
        step = epoch * 6 + it
        adj = graphs(8)
        if step == 8:
            adj[3, 5] = 0
            adj[3, :, 5] = 0
        label = (adj.sum((1, 2)) > 42).long()
        loss = F.cross_entropy(model(torch.randn(8, 10, 8), adj), label)
        opt.zero_grad(set_to_none=True)
        loss.backward()
        opt.step()
        losses.append(loss.item())
print(losses)
print("FINITE", all(map(math.isfinite, losses)) and all(bool(p.isfinite().all()) for p in model.parameters()))
