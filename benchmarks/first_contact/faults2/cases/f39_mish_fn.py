"""thomasbrandon/mish-cuda (custom backward with exp): own autograd.Function whose backward overflows, inf / inf
TRUTH op=aten.exp|aten.mul|aten.pow reason=exp overflow|overflow phase=backward"""
import sys
import torch
from torch import nn
import torch.nn.functional as F
from _util import done
CURED = "--cured" in sys.argv
torch.manual_seed(0); torch.set_num_threads(1)

class MishFn(torch.autograd.Function):
    @staticmethod
    def forward(ctx, x):
        ctx.save_for_backward(x); return x * torch.tanh(F.softplus(x))
    @staticmethod
    def backward(ctx, g):
        x, = ctx.saved_tensors
        if CURED: x = x.clamp(max=20)
        e = torch.exp(x)
        w = 4 * (x + 1) + 4 * e ** 2 + e ** 3 + e * (4 * x + 6)  # FAULT
        d = 2 * e + e ** 2 + 2
        return g * e * w / d ** 2
class Mish(nn.Module):
    def forward(self, x): return MishFn.apply(x)
net = nn.Sequential(nn.Conv1d(4, 16, 3, padding=1), Mish(), nn.Conv1d(16, 4, 3, padding=1)); opt = torch.optim.Adam(net.parameters(), 1e-3)
for step in range(4):
    x = torch.randn(4, 4, 20)
    if step == 2: x[1] *= 60
    loss = F.smooth_l1_loss(net(x), x); opt.zero_grad(); loss.backward(); opt.step(); print(step, loss.item())
done(loss.detach(), net)
