"""early stopping, ReduceLROnPlateau (inf inside), max pooling over padding set to -inf, running min/max observers starting at inf"""
import sys
import torch
from torch import nn
import torch.nn.functional as F
from _util import done
torch.manual_seed(0); torch.set_num_threads(1)

class Obs(nn.Module):
    def __init__(self):
        super().__init__(); self.register_buffer("lo", torch.tensor(float("inf"))); self.register_buffer("hi", torch.tensor(float("-inf")))
    def forward(self, x):
        with torch.no_grad(): self.lo.copy_(torch.minimum(self.lo, x.min())); self.hi.copy_(torch.maximum(self.hi, x.max()))
        return x
net = nn.Sequential(nn.Linear(5, 16), Obs(), nn.ReLU()); o = nn.Sequential(nn.Linear(16, 2), Obs()); unused = Obs(); opt = torch.optim.Adam([*net.parameters(), *o.parameters()], 1e-2); sch = torch.optim.lr_scheduler.ReduceLROnPlateau(opt)
for step in range(25):
    x = torch.randn(6, 9, 5); m = torch.rand(6, 9) < 0.3; m[:, 0] = False
    h = net(x).masked_fill(m[..., None], float("-inf")).amax(1); loss = F.cross_entropy(o(h), (x[:, 0, 0] > 0).long()); opt.zero_grad(); loss.backward(); opt.step(); sch.step(loss.detach())
print(loss.item()); done(loss.detach(), net, o)
