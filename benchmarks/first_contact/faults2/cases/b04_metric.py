"""evaluation metrics with 0/0: precision of a class never predicted (torchmetrics and own), printed as nan"""
import sys
import torch
from torch import nn
import torch.nn.functional as F
from _util import done
torch.manual_seed(0); torch.set_num_threads(1)

import torchmetrics
net = nn.Sequential(nn.Linear(8, 16), nn.ReLU(), nn.Linear(16, 6)); opt = torch.optim.SGD(net.parameters(), 0.1); iou = torchmetrics.JaccardIndex(task="multiclass", num_classes=6, average="none")
for ep in range(3):
    net.train()
    for _ in range(8):
        x, y = torch.randn(16, 8), torch.randint(0, 3, (16,)); loss = F.cross_entropy(net(x), y); opt.zero_grad(); loss.backward(); opt.step()
    net.eval()
    with torch.no_grad():
        x, y = torch.randn(32, 8), torch.randint(0, 3, (32,)); p = net(x).argmax(1); iou.update(p, y)
        tp = torch.stack([((p == c) & (y == c)).sum() for c in range(6)]).float(); pred = torch.stack([(p == c).sum() for c in range(6)]).float()
        print(ep, (tp / pred).tolist(), iou.compute().tolist())
done(loss.detach(), net)
