"""A tiny anchor-free detector trained with CIoU; a label file has a box without width and height.
Source: ultralytics/yolov5#13416, pythonlessons/TensorFlow-2.x-YOLOv3#144."""
import sys, math
import torch
from torch import nn

torch.set_num_threads(1)
torch.manual_seed(3)
CURED = "--cured" in sys.argv


def bbox_ciou(box1, box2, eps=1e-7):
    """xywh boxes"""
    x1, y1, w1, h1 = box1.unbind(-1)
    x2, y2, w2, h2 = box2.unbind(-1)
    iw = (torch.min(x1 + w1 / 2, x2 + w2 / 2) - torch.max(x1 - w1 / 2, x2 - w2 / 2)).clamp(0)
    ih = (torch.min(y1 + h1 / 2, y2 + h2 / 2) - torch.max(y1 - h1 / 2, y2 - h2 / 2)).clamp(0)
    inter = iw * ih
    iou = inter / (w1 * h1 + w2 * h2 - inter + eps)
    cw = torch.max(x1 + w1 / 2, x2 + w2 / 2) - torch.min(x1 - w1 / 2, x2 - w2 / 2)
    ch = torch.max(y1 + h1 / 2, y2 + h2 / 2) - torch.min(y1 - h1 / 2, y2 - h2 / 2)
    rho = ((x1 - x2) ** 2 + (y1 - y2) ** 2) / (cw ** 2 + ch ** 2 + eps)
    ratio = w2 / (h2 + eps) if CURED else w2 / h2  # FAULT
    v = 4 / math.pi ** 2 * (torch.atan(ratio) - torch.atan(w1 / (h1 + eps))) ** 2
    with torch.no_grad():
        alpha = v / (v - iou + 1 + eps)
    return iou - rho - alpha * v


class Detector(nn.Module):
    def __init__(self):
        super().__init__()
        self.backbone = nn.Sequential(nn.Conv2d(3, 16, 3, 2, 1), nn.BatchNorm2d(16), nn.SiLU(), nn.Conv2d(16, 32, 3, 2, 1), nn.BatchNorm2d(32), nn.SiLU())
        self.head = nn.Conv2d(32, 5, 1)

    def forward(self, x):
        y = self.head(self.backbone(x)).mean((2, 3))
        return torch.cat([y[:, :2].sigmoid(), (y[:, 2:4].sigmoid() * 2) ** 2 * 0.3], 1), y[:, 4]


model = Detector()
opt = torch.optim.SGD(model.parameters(), 0.01, momentum=0.9, nesterov=True)
losses = []
for step in range(15):
    images = torch.rand(8, 3, 32, 32)
    boxes = torch.cat([torch.rand(8, 2) * 0.6 + 0.2, torch.rand(8, 2) * 0.3 + 0.1], 1)
    if step == 9:
        boxes[4, 2:] = 0.0  # clicked, not dragged
    pred, obj = model(images)
    ciou = bbox_ciou(pred, boxes)
    loss = (1 - ciou).mean() + nn.functional.binary_cross_entropy_with_logits(obj, ciou.detach().clamp(0))
    opt.zero_grad()
    loss.backward()
    opt.step()
    losses.append(loss.item())
    print(f"{step:3d} {losses[-1]:.4f}")
state = [t for t in model.state_dict().values() if t.is_floating_point()]
print("FINITE", all(map(math.isfinite, losses)) and all(bool(t.isfinite().all()) for t in state))
