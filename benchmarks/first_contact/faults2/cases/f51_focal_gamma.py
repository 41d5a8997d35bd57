"""clcarwin/focal_loss_pytorch (1 - pt)**gamma with gamma 0.5 and a saturated probability
TRUTH op=aten.pow|aten.mul|aten.div reason=gradient of sqrt or norm at zero|gradient|0 * inf phase=backward"""
import sys
import torch
from torch import nn
import torch.nn.functional as F
from _util import done
CURED = "--cured" in sys.argv
torch.manual_seed(0); torch.set_num_threads(1)

class Focal(nn.Module):
    def __init__(self, gamma): super().__init__(); self.gamma = gamma
    def forward(self, logits, y):
        lp = F.log_softmax(logits, 1).gather(1, y[:, None]).squeeze(1); pt = lp.exp()
        if CURED: pt = pt.clamp(max=1 - 1e-6)
        w = (1 - pt) ** self.gamma  # FAULT
        return -(w * lp).mean()
net = nn.Sequential(nn.Conv2d(3, 8, 3), nn.InstanceNorm2d(8), nn.Hardswish(), nn.AdaptiveMaxPool2d(2), nn.Flatten(), nn.Linear(32, 3)); crit = Focal(0.5); opt = torch.optim.SGD(net.parameters(), 0.1)
for step in range(4):
    x = torch.rand(4, 3, 10, 10)
    if step == 2:
        with torch.no_grad(): net[5].bias.copy_(torch.tensor([60., 0., 0.]))
    loss = crit(net(x), torch.zeros(4, dtype=torch.long)); opt.zero_grad(); loss.backward(); opt.step(); print(step, loss.item())
done(loss.detach(), net)
