"""chainer/chainer#1839, pytorch/pytorch#22442: own Gumbel noise in bfloat16, u is exactly 1 and -log(-log(1)) is inf
TRUTH op=aten.log reason=argument outside the function's domain|division by zero"""
import sys
import torch
from torch import nn
import torch.nn.functional as F
from _util import done
CURED = "--cured" in sys.argv
torch.manual_seed(0); torch.set_num_threads(1)

class NAS(nn.Module):
    def __init__(self):
        super().__init__(); self.alpha = nn.Parameter(torch.zeros(64, 4)); self.ops = nn.ModuleList(nn.Linear(64, 64) for _ in range(4))
    def forward(self, x):
        u = 1 - torch.rand(64, 4, dtype=torch.bfloat16)
        if CURED: u = u.clamp(1e-3, 1 - 1e-2)
        e = -torch.log(u)
        g = -torch.log(e)  # FAULT
        w = torch.softmax(self.alpha + g.float(), -1)
        return sum(w[:, i] * op(x) for i, op in enumerate(self.ops))
net = NAS(); opt = torch.optim.Adam(net.parameters(), 1e-3)
for step in range(30):
    x = torch.randn(4, 64); loss = F.mse_loss(net(x), x); opt.zero_grad(); loss.backward(); opt.step()
print(loss.item()); done(loss.detach(), net)
