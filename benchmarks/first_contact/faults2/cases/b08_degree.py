"""GCN normalisation: pow(-0.5) of degree zero is inf and set to zero at once (pyg gcn_norm masked_fill)"""
import sys
import torch
from torch import nn
import torch.nn.functional as F
from _util import done
torch.manual_seed(0); torch.set_num_threads(1)

class GCN(nn.Module):
    def __init__(self, i, o):
        super().__init__(); self.l = nn.Linear(i, o)
    def forward(self, x, ei):
        r, c = ei; d = torch.zeros(len(x)).index_add_(0, c, torch.ones(ei.size(1))); s = d.pow_(-0.5); s.masked_fill_(s == float("inf"), 0)
        return torch.zeros(len(x), self.l.out_features).index_add_(0, c, self.l(x)[r] * (s[r] * s[c])[:, None])
a, b = GCN(6, 16), GCN(16, 3); opt = torch.optim.Adam([*a.parameters(), *b.parameters()], 1e-2)
for step in range(25):
    x, ei = torch.randn(12, 6), torch.randint(0, 9, (2, 20)); loss = F.cross_entropy(b(F.relu(a(x, ei)), ei), torch.randint(0, 3, (12,))); opt.zero_grad(); loss.backward(); opt.step()
print(loss.item()); done(loss.detach(), a, b)
