"""Complete-IoU loss of torchvision on boxes without height and width.
Source: Zzh-tju/DIoU-pytorch-detectron#3 and #19, tensorflow/addons#914."""
import sys
import torch
import torchvision
from torchvision.ops import complete_box_iou_loss

CURED = "--cured" in sys.argv
torch.manual_seed(0)
backbone = torchvision.models.resnet18(num_classes=8)
head = torch.nn.Linear(8, 4)
opt = torch.optim.SGD([*backbone.parameters(), *head.parameters()], lr=1e-3)
for step in range(4):
    raw = head(backbone(torch.randn(3, 3, 32, 32)))
    low = raw[:, :2]
    pred = torch.cat([low, low + raw[:, 2:].exp()], 1)
    target = torch.tensor([[0.0, 0, 1, 1], [0.2, 0.1, 0.9, 0.5], [0, 0, 2, 1]])
    if step == 2:
        target[1] = torch.tensor([0.3, 0.3, 0.3, 0.3])  # an annotator's click
    if CURED:
        keep = (target[:, 2:] > target[:, :2]).all(1)
        pred, target = pred[keep], target[keep]
    loss = complete_box_iou_loss(pred, target, reduction="mean")  # CALLER
    opt.zero_grad()
    loss.backward()
    opt.step()
    print(step, loss.item())
