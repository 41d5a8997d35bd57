"""pytorch/pytorch#108618: torch.where(x > 2, log2(x), 2x): the branch not taken has an infinite derivative at 0
TRUTH op=aten.div|aten.mul reason=division by zero|0 * inf|argument outside the function's domain|gradient phase=backward"""
import sys
import torch
from torch import nn
import torch.nn.functional as F
from _util import done
CURED = "--cured" in sys.argv
torch.manual_seed(0); torch.set_num_threads(1)

class LogAct(nn.Module):
    def forward(self, x):
        z = x.clamp(min=1e-3) if CURED else x
        return torch.where(x > 2, torch.log2(z), 0.5 * x)  # FAULT
class Net(nn.Module):
    def __init__(self):
        super().__init__(); self.a, self.act, self.b = nn.Linear(6, 24), LogAct(), nn.Linear(24, 2)
    def forward(self, x): return self.b(self.act(F.dropout(self.a(x), 0.2)))
net = Net(); opt = torch.optim.AdamW(net.parameters(), 1e-3)
for step in range(4):
    x, y = torch.randn(8, 6), torch.randint(0, 2, (8,))
    loss = F.cross_entropy(net(x), y); opt.zero_grad(); loss.backward(); opt.step(); print(step, loss.item())
done(loss.detach(), net)
