"""FlyingGiraffe/vnn#4: vector-neuron batch norm divides by the norm of a zero vector
TRUTH op=aten.div reason=division by zero"""
import sys
import torch
from torch import nn
import torch.nn.functional as F
from _util import done
CURED = "--cured" in sys.argv
torch.manual_seed(0); torch.set_num_threads(1)

class VNBatchNorm(nn.Module):
    def __init__(self, c):
        super().__init__(); self.bn = nn.BatchNorm1d(c); self.eps = 1e-6 if CURED else 0.0
    def forward(self, x):                       # B, C, 3, N
        n = x.norm(dim=2) + self.eps
        return x / n.unsqueeze(2) * self.bn(n).unsqueeze(2)  # FAULT
class VN(nn.Module):
    def __init__(self):
        super().__init__(); self.l, self.b, self.o = nn.Linear(1, 8, bias=False), VNBatchNorm(8), nn.Linear(8, 4)
    def forward(self, p):
        h = self.b(self.l(p.transpose(1, 2).unsqueeze(1).transpose(1, -1)).transpose(1, -1)); return self.o(h.norm(dim=2).mean(-1))
net = VN(); opt = torch.optim.Adam(net.parameters(), 1e-3)
for step in range(4):
    p = torch.randn(6, 20, 3)
    if step == 2: p[4, 15:] = 0           # padding points
    loss = F.cross_entropy(net(p), torch.randint(0, 4, (6,))); opt.zero_grad(); loss.backward(); opt.step(); print(step, loss.item())
done(loss.detach(), net)
