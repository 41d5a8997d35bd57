"""Segmentation whose evaluation divides 0 by 0 for classes that don't occur, and averages with nanmean.
Source: MIC-DKFZ/nnUNet#2034 ("why the dice is 0 or nan"), mmsegmentation (nan_to_num, nanmean of IoU)."""
import math, torch
from torch import nn
torch.set_num_threads(1)
torch.manual_seed(8)
CLASSES = 6
model = nn.Sequential(nn.Conv2d(1, 16, 3, padding=1), nn.BatchNorm2d(16), nn.ReLU(), nn.Conv2d(16, CLASSES, 3, padding=1))
opt = torch.optim.Adam(model.parameters(), lr=1e-2)


@torch.no_grad()
def evaluate():
    model.eval()
    inter, union = torch.zeros(CLASSES), torch.zeros(CLASSES)
    x = torch.rand(8, 1, 12, 12) * 4
    y, p = x[:, 0].long(), model(x).argmax(1)
    for c in range(CLASSES):
        inter[c], union[c] = ((p == c) & (y == c)).sum(), ((p == c) | (y == c)).sum()
    iou = inter / union
    model.train()
    return iou.nanmean().item(), iou


losses = []
for step in range(40):
    x = torch.rand(8, 1, 12, 12) * 4
    loss = nn.functional.cross_entropy(model(x), x[:, 0].long())
    opt.zero_grad()
    loss.backward()
    opt.step()
    losses.append(loss.item())
    if step % 10 == 9:
        print(step, evaluate())
print(losses[0], losses[-1], "FINITE", all(map(math.isfinite, losses)) and all(bool(t.isfinite().all()) for t in model.state_dict().values()))
