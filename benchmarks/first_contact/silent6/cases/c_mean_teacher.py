"""Healthy: mean teacher: a consistency weight that ramps up (the total loss rises for a while), teacher in train mode with dropout, few labels.
500 steps."""
import sys, math, copy, random, torch, torch.nn as nn, torch.nn.functional as F
torch.manual_seed(0); random.seed(0); torch.set_num_threads(1)
def mk(): return nn.Sequential(nn.Linear(10, 64), nn.ReLU(), nn.Dropout(.3), nn.Linear(64, 4))
student = mk(); teacher = copy.deepcopy(student).requires_grad_(False); opt = torch.optim.Adam(student.parameters(), 2e-3); c = torch.randn(4, 10) * 1.2; Xl = c.repeat(6, 1) + torch.randn(24, 10); Yl = torch.arange(4).repeat(6)
for step in range(500):
    y = torch.randint(0, 4, (96,)); xu = c[y] + torch.randn(96, 10); k = 8. * math.exp(-5 * (1 - min(1, step / 250)) ** 2)
    with torch.no_grad(): t = F.softmax(teacher(xu + .1 * torch.randn_like(xu)), 1)
    loss = F.cross_entropy(student(Xl), Yl) + k * F.mse_loss(F.softmax(student(xu), 1), t); opt.zero_grad(); loss.backward(); opt.step(); d = min(.99, 1 - 1 / (step + 1))
    with torch.no_grad(): [a.mul_(d).add_(b, alpha=1 - d) for a, b in zip(teacher.parameters(), student.parameters())]
    if step % 50 == 0: print(step, loss.item(), k)
