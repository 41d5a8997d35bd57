"""pytorch/vision box coder (degenerate boxes, cf. AlexeyAB/darknet and open-mmlab/mmdetection#3394): log of a zero width
TRUTH op=aten.log reason=argument outside the function's domain|division by zero lib=torchvision/models/detection/_utils.py pattern=torch.log(gt_"""
import sys
import torch
from torch import nn
import torch.nn.functional as F
from _util import done
CURED = "--cured" in sys.argv
torch.manual_seed(0); torch.set_num_threads(1)

from torchvision.models.detection._utils import BoxCoder
from torchvision.models import resnet18
body = nn.Sequential(*list(resnet18(num_classes=2).children())[:5]); head = nn.Linear(64, 4); coder = BoxCoder((1., 1., 1., 1.))
opt = torch.optim.SGD([*body.parameters(), *head.parameters()], 0.01, momentum=0.9)
for step in range(3):
    x = torch.rand(2, 3, 32, 32); p = torch.tensor([[2., 2., 12., 12.], [4., 4., 20., 24.]]).repeat(2, 1)
    gt = p + torch.rand(4, 4)
    if step == 1 and not CURED: gt[2, 2] = gt[2, 0]   # annotation without width
    target = coder.encode([gt], [p])[0]
    f = body(x).mean((2, 3)).repeat_interleave(2, 0)
    loss = F.smooth_l1_loss(head(f), target); opt.zero_grad(); loss.backward(); opt.step(); print(step, loss.item())
done(loss.detach(), body, head)
