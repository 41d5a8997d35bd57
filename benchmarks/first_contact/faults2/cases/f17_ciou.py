"""pythonlessons/TensorFlow-2.x-YOLOv3#144: aspect ratio w/h of padding boxes, 0/0
TRUTH op=aten.div reason=division by zero"""
import sys
import torch
from torch import nn
import torch.nn.functional as F
from _util import done
CURED = "--cured" in sys.argv
torch.manual_seed(0); torch.set_num_threads(1)

import math
def ciou(p, t):
    pa, pb, ta, tb = p[..., :2] - p[..., 2:] / 2, p[..., :2] + p[..., 2:] / 2, t[..., :2] - t[..., 2:] / 2, t[..., :2] + t[..., 2:] / 2
    inter = (torch.min(pb, tb) - torch.max(pa, ta)).clamp(min=0).prod(-1)
    iou = inter / (p[..., 2:].prod(-1) + t[..., 2:].prod(-1) - inter + 1e-7)
    h = t[..., 3] + (1e-6 if CURED else 0.0)
    ar_gt = t[..., 2] / h  # FAULT
    v = 4 / math.pi ** 2 * (torch.atan(ar_gt) - torch.atan(p[..., 2] / p[..., 3])) ** 2
    return 1 - iou + v
class Yolo(nn.Module):
    def __init__(self):
        super().__init__(); self.b = nn.Sequential(nn.Conv2d(3, 8, 3, 2, 1), nn.BatchNorm2d(8), nn.SiLU(), nn.Conv2d(8, 4, 3, 2, 1))
    def forward(self, x):
        o = self.b(x).flatten(2).transpose(1, 2); return torch.cat([o[..., :2].sigmoid(), o[..., 2:].exp()], -1)
net = Yolo(); opt = torch.optim.SGD(net.parameters(), 0.01)
for step in range(4):
    x, t = torch.rand(2, 3, 16, 16), torch.rand(2, 16, 4) * 0.5 + 0.2
    mask = torch.ones(2, 16)
    if step == 2: t[1, 10:] = 0; mask[1, 10:] = 0
    loss = (ciou(net(x), t) * mask).sum() / mask.sum(); opt.zero_grad(); loss.backward(); opt.step(); print(step, loss.item())
done(loss.detach(), net)
