"""Dice loss per class without smoothing: a class that is neither in the mask nor predicted.
Source: Project-MONAI/MONAI#120, nasa/delta#115."""
import sys
import torch
from torch import nn
import torchvision

CURED = "--cured" in sys.argv
torch.manual_seed(0)
net = torchvision.models.segmentation.lraspp_mobilenet_v3_large(weights=None, weights_backbone=None, num_classes=3)
opt = torch.optim.Adam(net.parameters(), lr=1e-4)


def dice(prob, hot):
    inter = (prob * hot).sum((0, 2, 3))
    size = prob.sum((0, 2, 3)) + hot.sum((0, 2, 3))
    if CURED:
        size = size + 1e-6
    return 1 - (2 * inter / size).mean()  # FAULT


for step in range(3):
    x = torch.randn(2, 3, 64, 64)
    y = torch.randint(0, 2 if step == 1 else 3, (2, 64, 64))
    logits = net(x)["out"]
    if step == 1:
        logits = logits + torch.tensor([0.0, 0.0, -200.0]).view(1, 3, 1, 1)  # the class is not in this scan
    hot = nn.functional.one_hot(y, 3).permute(0, 3, 1, 2).float()
    loss = dice(logits.softmax(1), hot)
    opt.zero_grad()
    loss.backward()
    opt.step()
    print(step, loss.item())
