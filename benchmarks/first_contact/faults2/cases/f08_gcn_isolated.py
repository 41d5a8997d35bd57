"""mlx-graphs/mlx-graphs#18: D^-1/2 of an isolated node computed once before training, without gradients
TRUTH op=aten.pow reason=division by zero"""
import sys
import torch
from torch import nn
import torch.nn.functional as F
from _util import done
CURED = "--cured" in sys.argv
torch.manual_seed(0); torch.set_num_threads(1)

class Net(nn.Module):
    def __init__(self):
        super().__init__(); self.a, self.b = nn.Linear(8, 16), nn.Linear(16, 3)
    def forward(self, x, adj): return adj @ self.b(F.relu(adj @ self.a(x)))
A = (torch.rand(15, 15) > 0.6).float(); A = torch.triu(A, 1); A = A + A.T
A[7] = 0; A[:, 7] = 0
deg = A.sum(1)
dis = deg.clamp(min=1e-10).pow(-0.5) if CURED else deg.pow(-0.5)  # FAULT
adj = dis[:, None] * A * dis[None, :]
x, y = torch.randn(15, 8), torch.randint(0, 3, (15,))
net = Net(); opt = torch.optim.Adam(net.parameters(), 1e-2)
for step in range(4):
    loss = F.cross_entropy(net(x, adj), y); opt.zero_grad(); loss.backward(); opt.step(); print(step, loss.item())
done(loss.detach(), net)
