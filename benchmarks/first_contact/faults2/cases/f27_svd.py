"""pytorch/pytorch#49886, Pzoom522/ProcrustEs-KGE#2: gradient of the SVD of a matrix with equal singular values
TRUTH op=aten.div|aten.mul|aten.reciprocal reason=division by zero|gradient phase=backward"""
import sys
import torch
from torch import nn
import torch.nn.functional as F
from _util import done
CURED = "--cured" in sys.argv
torch.manual_seed(0); torch.set_num_threads(1)

class Procrustes(nn.Module):
    def __init__(self):
        super().__init__(); self.w = nn.Parameter(torch.eye(6) * 2)
    def forward(self, x, y):
        u, s, vh = torch.linalg.svd(self.w + (torch.diag(torch.linspace(0.01, 0.2, 6)) if CURED else 0))  # FAULT
        return F.mse_loss(x @ (u @ vh), y) + 0.01 * (s - 1).pow(2).sum() + 0.01 * u[0, 0]
net = Procrustes(); opt = torch.optim.Adam(net.parameters(), 1e-3)
for step in range(3):
    x = torch.randn(32, 6); loss = net(x, x.roll(1, 1)); opt.zero_grad(); loss.backward(); opt.step(); print(step, loss.item())
done(loss.detach(), net)
