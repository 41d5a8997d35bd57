"""Invented (self-training without labels after a warm-up): the student learns its own average's predictions, times 1.3.
Diverges: each round makes the targets larger; nothing anchors them. What is printed is the loss on labels.
"""
import sys, math, copy, torch, torch.nn as nn, torch.nn.functional as F
H = "--healthy" in sys.argv
torch.manual_seed(0); torch.set_num_threads(1)
def log(step, loss):
    v = float(loss); print("step", step, "loss", v, flush=True); return math.isfinite(v) and abs(v) < 1e30
net = nn.Sequential(nn.Linear(8, 64), nn.ReLU(), nn.Linear(64, 4)); teacher = copy.deepcopy(net); opt = torch.optim.Adam(net.parameters(), 3e-3); w = torch.randn(8, 4)
for step in range(500):
    x = torch.randn(64, 8); xl = torch.randn(16, 8); y = xl @ w / 3
    with torch.no_grad(): t = teacher(x) * (1. if H else 1.3)
    k = min(1., step / 60); loss = (1 - k) * F.mse_loss(net(xl), y) + k * F.mse_loss(net(x + .05 * torch.randn_like(x)), t); opt.zero_grad(); loss.backward(); opt.step()
    with torch.no_grad(): [a.lerp_(b, .1) for a, b in zip(teacher.parameters(), net.parameters())]
    if not log(step, F.mse_loss(net(xl), y)): break
