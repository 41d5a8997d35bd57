"""GCN normalization: deg ** -0.5 is inf for isolated nodes and is set to 0 at once; attention over neighbours by -inf.
Source: pyg-team/pytorch_geometric gcn_norm (deg_inv_sqrt.masked_fill_(deg_inv_sqrt == float('inf'), 0))."""
import math, torch
from torch import nn
torch.set_num_threads(1)
torch.manual_seed(13)


class Net(nn.Module):
    def __init__(self):
        super().__init__()
        self.a, self.b = nn.Linear(6, 24), nn.Linear(24, 2)
        self.score = nn.Linear(24, 1)

    def forward(self, x, adj):
        inv = adj.sum(-1).pow(-0.5)
        inv.masked_fill_(inv == float("inf"), 0)
        norm = inv[:, :, None] * adj * inv[:, None]
        h = torch.relu(norm @ self.a(x) + self.a(x))
        att = self.score(h).squeeze(-1)[:, None].expand_as(adj).masked_fill((adj + torch.eye(adj.shape[-1])) == 0, float("-inf")).softmax(-1)
        return self.b((att @ h).mean(1))


net = Net()
opt = torch.optim.Adam(net.parameters(), lr=1e-2)
losses = []
for step in range(40):
    up = torch.triu((torch.rand(16, 8, 8) < 0.25).float(), 1)
    adj = up + up.transpose(1, 2)
    adj[:, 3], adj[:, :, 3] = 0, 0
    loss = nn.functional.cross_entropy(net(adj.sum(-1, keepdim=True).expand(-1, -1, 6), adj), (adj.sum((1, 2)) > 10).long())
    opt.zero_grad()
    loss.backward()
    opt.step()
    losses.append(loss.item())
print(losses[0], losses[-1], "FINITE", all(map(math.isfinite, losses)) and all(bool(p.isfinite().all()) for p in net.parameters()))
