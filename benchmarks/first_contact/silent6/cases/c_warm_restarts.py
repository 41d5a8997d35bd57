"""Healthy: SGDR (CosineAnnealingWarmRestarts) with a doubled period: the loss jumps at each restart.  600 steps."""
import sys, math, copy, random, torch, torch.nn as nn, torch.nn.functional as F
torch.manual_seed(0); random.seed(0); torch.set_num_threads(1)
net = nn.Sequential(nn.Conv2d(1, 16, 3, padding=1), nn.BatchNorm2d(16), nn.ReLU(), nn.MaxPool2d(2), nn.Conv2d(16, 32, 3, padding=1), nn.BatchNorm2d(32), nn.ReLU(), nn.AdaptiveAvgPool2d(1), nn.Flatten(), nn.Linear(32, 5)); P = torch.randn(5, 1, 12, 12)
opt = torch.optim.SGD(net.parameters(), .2, momentum=.9, weight_decay=5e-4, nesterov=True); sch = torch.optim.lr_scheduler.CosineAnnealingWarmRestarts(opt, 40, 2, eta_min=1e-4)
for step in range(600):
    y = torch.randint(0, 5, (32,)); loss = F.cross_entropy(net(P[y] + 1.5 * torch.randn(32, 1, 12, 12)), y); opt.zero_grad(); loss.backward(); opt.step(); sch.step()
    if step % 50 == 0: print(step, loss.item(), sch.get_last_lr()[0])
