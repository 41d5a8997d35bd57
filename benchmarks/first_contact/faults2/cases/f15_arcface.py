"""MccreeZhao/FR-Loss-on-Mnist#2, d3-ai/face-verification-demo#5: sine = sqrt(1 - cos^2), input and weight in one direction
TRUTH op=aten.div|aten.mul reason=gradient of sqrt or norm at zero phase=backward"""
import sys
import torch
from torch import nn
import torch.nn.functional as F
from _util import done
CURED = "--cured" in sys.argv
torch.manual_seed(0); torch.set_num_threads(1)

class Arc(nn.Module):
    def __init__(self, d, n, s=30.0, m=0.5):
        super().__init__(); self.w = nn.Parameter(torch.randn(n, d)); self.s = s
        self.cm, self.sm = torch.cos(torch.tensor(m)), torch.sin(torch.tensor(m))
    def forward(self, x, y):
        cos = F.linear(F.normalize(x), F.normalize(self.w)).clamp(-1, 1)
        if CURED: cos = cos.clamp(-1 + 1e-6, 1 - 1e-6)
        sine = torch.sqrt(1.0 - cos ** 2)  # FAULT
        one = F.one_hot(y, cos.size(1)).float()
        return F.cross_entropy(self.s * (one * (cos * self.cm - sine * self.sm) + (1 - one) * cos), y)
body = nn.Sequential(nn.Conv2d(1, 4, 3), nn.PReLU(), nn.Flatten(), nn.Linear(4 * 36, 1)); head = Arc(1, 3)
opt = torch.optim.SGD([*body.parameters(), *head.parameters()], 0.01)
for step in range(4):
    x, y = torch.randn(8, 1, 8, 8), torch.randint(0, 3, (8,))
    loss = head(body(x), y); opt.zero_grad(); loss.backward(); opt.step(); print(step, loss.item())
done(loss.detach(), body, head)
