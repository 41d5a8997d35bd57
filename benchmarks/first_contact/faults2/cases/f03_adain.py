"""grey-eye/talking-heads#32: AdaIN adds eps after the root; a dead channel has variance 0 and the root's gradient is infinite
TRUTH op=aten.div|aten.mul reason=gradient of sqrt or norm at zero phase=backward"""
import sys
import torch
from torch import nn
import torch.nn.functional as F
from _util import done
CURED = "--cured" in sys.argv
torch.manual_seed(0); torch.set_num_threads(1)

class AdaIN(nn.Module):
    def __init__(self, c, s):
        super().__init__(); self.fc = nn.Linear(s, 2 * c)
    def forward(self, f, style):
        B, C = f.shape[:2]; v = f.view(B, C, -1)
        var = v.var(dim=2) + (1e-5 if CURED else 0.0)
        std = torch.sqrt(var) + 1e-5  # FAULT
        g, b = self.fc(style).chunk(2, 1)
        return g.view(B, C, 1, 1) * (f - v.mean(2).view(B, C, 1, 1)) / std.view(B, C, 1, 1) + b.view(B, C, 1, 1)
class Gen(nn.Module):
    def __init__(self):
        super().__init__()
        self.c1, self.n1, self.c2 = nn.Conv2d(3, 8, 3, padding=1), AdaIN(8, 4), nn.Conv2d(8, 3, 3, padding=1)
    def forward(self, x, s):
        return torch.tanh(self.c2(self.n1(F.leaky_relu(self.c1(x), 0.2), s)))
net = Gen(); opt = torch.optim.Adam(net.parameters(), 1e-3)
for step in range(5):
    x, s = torch.rand(2, 3, 8, 8), torch.randn(2, 4)
    if step == 2:
        with torch.no_grad(): net.c1.weight[5] = 0.0   # a pruned channel
    loss = F.l1_loss(net(x, s), x.clamp(0, 1)); opt.zero_grad(); loss.backward(); opt.step(); print(step, loss.item())
done(loss.detach(), net)
