"""Invented: ExponentialLR(gamma=1.02) where 0.98 was meant, stepped once an update.
Diverges: the rate grows exponentially until the steps are unstable.
"""
import sys, math, copy, torch, torch.nn as nn, torch.nn.functional as F
H = "--healthy" in sys.argv
torch.manual_seed(0); torch.set_num_threads(1)
def log(step, loss):
    v = float(loss); print("step", step, "loss", v, flush=True); return math.isfinite(v) and abs(v) < 1e30
net = nn.Sequential(nn.Conv1d(4, 32, 5, padding=2), nn.GELU(), nn.Conv1d(32, 32, 5, padding=2), nn.GELU(), nn.Conv1d(32, 4, 5, padding=2)); opt = torch.optim.SGD(net.parameters(), .02, momentum=.9); sch = torch.optim.lr_scheduler.ExponentialLR(opt, .98 if H else 1.02)
for step in range(400):
    x = torch.randn(32, 4, 24); loss = F.mse_loss(net(x), x.cumsum(2) / 3); opt.zero_grad(); loss.backward(); opt.step(); sch.step()
    if not log(step, loss): break
