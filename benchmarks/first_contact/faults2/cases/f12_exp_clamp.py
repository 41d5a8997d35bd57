"""pytorch/pytorch#10729: exp(x).clamp(max=1): forward finite, gradient 0 * inf
TRUTH op=aten.exp|aten.mul reason=exp overflow|0 * inf"""
import sys
import torch
from torch import nn
import torch.nn.functional as F
from _util import done
CURED = "--cured" in sys.argv
torch.manual_seed(0); torch.set_num_threads(1)

class ELUish(nn.Module):
    def forward(self, x):
        x = x.clamp(max=10) if CURED else x
        y = torch.exp(x)  # FAULT
        return y.clamp(max=1.0)
net = nn.Sequential(nn.Linear(10, 32), ELUish(), nn.Linear(32, 32), ELUish(), nn.Linear(32, 1)); opt = torch.optim.RMSprop(net.parameters(), 1e-3)
for step in range(5):
    x = torch.randn(16, 10)
    if step == 3: x[4] *= 500
    loss = F.mse_loss(net(x).squeeze(1), x[:, 0].clamp(-2, 2)); opt.zero_grad(); loss.backward(); opt.step(); print(step, loss.item())
done(loss.detach(), net)
