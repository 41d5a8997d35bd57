"""Focal loss with gamma 0.5: d/dx of (1-p)^0.5 at p == 1.
Source: kornia/kornia#918, kaidic/LDAM-DRW#17, clcarwin/focal_loss_pytorch#13."""
import sys
import torch
import torch.nn.functional as F
from torch import nn
import torchvision

CURED = "--cured" in sys.argv
torch.manual_seed(0)
model = torchvision.models.mobilenet_v3_small(num_classes=4, width_mult=0.5)


def focal(logits, labels, gamma=0.5, alpha=0.25):
    logp = F.log_softmax(logits, dim=1).gather(1, labels[:, None]).squeeze(1)
    p = logp.exp()
    miss = 1 - p
    if CURED:
        miss = miss.clamp(min=1e-6)
    weight = torch.pow(miss, gamma)  # FAULT
    return (-alpha * weight * logp).mean()


opt = torch.optim.AdamW(model.parameters(), lr=1e-3)
for step in range(4):
    x, y = torch.randn(4, 3, 64, 64), torch.randint(4, (4,))
    logits = model(x)
    if step == 2:
        logits = logits + 40.0 * F.one_hot(y, 4)  # a confident prior, as after many epochs
    loss = focal(logits, y)
    opt.zero_grad()
    loss.backward()
    opt.step()
    print(step, loss.item())
