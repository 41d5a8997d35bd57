"""Faster-RCNN's box coder on corners in the wrong order: log of a negative width. (The models themselves refuse such boxes; an own RPN does not.)
Source: pytorch/vision#1120, #2240."""
import sys
import torch
from torchvision.models.detection._utils import BoxCoder
from torchvision.models.detection.rpn import RPNHead

CURED = "--cured" in sys.argv
torch.manual_seed(0)
trunk = torch.nn.Sequential(torch.nn.Conv2d(3, 8, 3, 4, 1), torch.nn.ReLU())
rpn = RPNHead(8, 1)
coder = BoxCoder((1.0, 1.0, 1.0, 1.0))
opt = torch.optim.SGD([*trunk.parameters(), *rpn.parameters()], lr=1e-2)
ys, xs = torch.meshgrid(torch.arange(8.0), torch.arange(8.0), indexing="ij")
anchors = torch.stack([xs, ys, xs + 2, ys + 2], -1).view(-1, 4) * 4
for step in range(4):
    boxes = torch.tensor([[2.0, 3.0, 20.0, 25.0]])
    if step == 2:
        boxes = torch.tensor([[20.0, 3.0, 2.0, 25.0]])  # xmax before xmin
        if CURED:
            boxes = torch.cat([boxes[:, :2].minimum(boxes[:, 2:]), boxes[:, :2].maximum(boxes[:, 2:])], 1)
    goal = coder.encode_single(boxes.expand(64, 4), anchors)  # CALLER
    objectness, deltas = rpn([trunk(torch.randn(1, 3, 32, 32))])
    pred = deltas[0].permute(0, 2, 3, 1).reshape(-1, 4)
    loss = torch.nn.functional.smooth_l1_loss(pred, goal) + objectness[0].sigmoid().mean()
    opt.zero_grad()
    loss.backward()
    opt.step()
    print(step, loss.item())
