"""pyg-team/pytorch_geometric#61: degree from signed edge weights, pow(-0.5) of a negative number
TRUTH op=aten.pow reason=argument outside the function's domain"""
import sys
import torch
from torch import nn
import torch.nn.functional as F
from _util import done
CURED = "--cured" in sys.argv
torch.manual_seed(0); torch.set_num_threads(1)

class GCNConv(nn.Module):
    def __init__(self, i, o):
        super().__init__(); self.lin = nn.Linear(i, o)
    def forward(self, x, ei, w):
        row, col = ei
        deg = torch.zeros(x.size(0)).index_add_(0, row, w.abs() if CURED else w)
        dis = deg.pow(-0.5)  # FAULT
        dis = dis.masked_fill(dis == float("inf"), 0.0)
        norm = dis[row] * w * dis[col]
        return torch.zeros(x.size(0), self.lin.out_features).index_add_(0, col, self.lin(x)[row] * norm[:, None])
class Net(nn.Module):
    def __init__(self):
        super().__init__(); self.a, self.b = GCNConv(8, 16), GCNConv(16, 3)
    def forward(self, x, ei, w): return self.b(F.relu(self.a(x, ei, w)), ei, w)
net = Net(); opt = torch.optim.Adam(net.parameters(), 1e-2)
for step in range(5):
    x, y = torch.randn(12, 8), torch.randint(0, 3, (12,))
    ei = torch.stack([torch.arange(12).repeat(2), torch.randint(0, 12, (24,))])
    w = torch.rand(24)
    if step == 2: w[5], w[17] = -0.9, 0.1
    loss = F.cross_entropy(net(x, ei, w), y); opt.zero_grad(); loss.backward(); opt.step(); print(step, loss.item())
done(loss.detach(), net)
