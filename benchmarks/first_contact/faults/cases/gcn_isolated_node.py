"""Graph convolution: degree ** -0.5 of an isolated node.
Source: pyg-team/pytorch_geometric#61, stellargraph/stellargraph#1015."""
import sys
import torch
from torch import nn

CURED = "--cured" in sys.argv
torch.manual_seed(0)


class GCN(nn.Module):
    def __init__(self, i, h, o):
        super().__init__()
        self.a, self.b = nn.Linear(i, h), nn.Linear(h, o)

    def forward(self, x, adj):
        deg = adj.sum(1)
        if CURED:
            deg = deg.clamp(min=1)
        inv = deg.pow(-0.5)  # FAULT
        norm = inv[:, None] * adj * inv[None, :]
        x = torch.relu(norm @ self.a(x))
        return norm @ self.b(x)


net = GCN(7, 16, 3)
opt = torch.optim.Adam(net.parameters(), lr=1e-2, weight_decay=5e-4)
for step in range(4):
    n = 20
    adj = (torch.rand(n, n) < 0.4).float()
    adj = ((adj + adj.T) > 0).float().fill_diagonal_(0)
    if step == 2:
        adj[5], adj[:, 5] = 0, 0
    loss = nn.functional.cross_entropy(net(torch.randn(n, 7), adj), torch.randint(3, (n,)))
    opt.zero_grad()
    loss.backward()
    opt.step()
    print(step, loss.item())
