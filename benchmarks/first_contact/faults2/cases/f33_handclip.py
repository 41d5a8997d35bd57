"""invented (cf. torch clip_grad_norm_, whose eps is there for this): own gradient clipping without epsilon, all gradients zero
TRUTH op=aten.div|aten.reciprocal|aten.mul reason=division by zero"""
import sys
import torch
from torch import nn
import torch.nn.functional as F
from _util import done
CURED = "--cured" in sys.argv
torch.manual_seed(0); torch.set_num_threads(1)

def clip_(params, max_norm):
    total = torch.stack([p.grad.norm() for p in params]).norm()
    coef = max_norm / (total + (1e-6 if CURED else 0.0))  # FAULT
    for p in params: p.grad.mul_(coef)
net = nn.Sequential(nn.Linear(10, 32), nn.Tanh(), nn.Linear(32, 1)); opt = torch.optim.NAdam(net.parameters(), 1e-3)
for step in range(5):
    x, y, m = torch.randn(8, 10), torch.randn(8), torch.ones(8)
    if step == 3: m[:] = 0
    loss = ((net(x).squeeze(1) - y).pow(2) * m).mean(); opt.zero_grad(); loss.backward(); clip_(list(net.parameters()), 1.0); opt.step(); print(step, loss.item())
done(loss.detach(), net)
