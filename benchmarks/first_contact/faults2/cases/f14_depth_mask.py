"""pytorch/pytorch#23156: depth image with inf multiplied by a learned scale, masked afterwards
TRUTH op=aten.mul reason=0 * inf phase=backward"""
import sys
import torch
from torch import nn
import torch.nn.functional as F
from _util import done
CURED = "--cured" in sys.argv
torch.manual_seed(0); torch.set_num_threads(1)

class Depth(nn.Module):
    def __init__(self):
        super().__init__(); self.scale = nn.Parameter(torch.ones(1)); self.c = nn.Conv2d(2, 8, 3, padding=1); self.o = nn.Conv2d(8, 1, 1)
    def forward(self, img, depth):
        if CURED: depth = depth.masked_fill(~torch.isfinite(depth), 0.0)
        d = depth * self.scale  # FAULT
        d = d.masked_fill(~torch.isfinite(d), 0.0)
        return self.o(F.relu(self.c(torch.cat([img, d], 1))))
net = Depth(); opt = torch.optim.Adam(net.parameters(), 1e-3)
for step in range(4):
    img, depth = torch.rand(2, 1, 8, 8), torch.rand(2, 1, 8, 8) * 5
    if step == 2: depth[0, 0, 3, 4] = float("inf")
    loss = F.mse_loss(net(img, depth), img); opt.zero_grad(); loss.backward(); opt.step(); print(step, loss.item())
done(loss.detach(), net)
