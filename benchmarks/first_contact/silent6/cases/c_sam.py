"""Healthy: sharpness-aware minimization: two backwards a step, weights moved up and back between them.  400 steps."""
import sys, math, copy, random, torch, torch.nn as nn, torch.nn.functional as F
torch.manual_seed(0); random.seed(0); torch.set_num_threads(1)
n = nn.Sequential(nn.Linear(12, 64), nn.ReLU(), nn.Linear(64, 5)); opt = torch.optim.SGD(n.parameters(), .05, momentum=.9); w = torch.randn(12, 5)
for step in range(400):
    x = torch.randn(64, 12); y = (x @ w + torch.randn(64, 5)).argmax(1); loss = F.cross_entropy(n(x), y); loss.backward()
    with torch.no_grad():
        g = torch.stack([p.grad.norm() for p in n.parameters()]).norm() + 1e-12; e = [.05 * p.grad / g for p in n.parameters()]; [p.add_(d) for p, d in zip(n.parameters(), e)]
    opt.zero_grad(); F.cross_entropy(n(x), y).backward()
    with torch.no_grad(): [p.sub_(d) for p, d in zip(n.parameters(), e)]
    opt.step(); opt.zero_grad()
    if step % 50 == 0: print(step, loss.item())
