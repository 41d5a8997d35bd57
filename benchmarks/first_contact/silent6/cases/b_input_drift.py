"""Invented (a sensor whose gain drifts; inputs are not normalized).
Diverges: the inputs grow by 3 % a step, and with them the curvature, until the constant rate is too high for it.
"""
import sys, math, copy, torch, torch.nn as nn, torch.nn.functional as F
H = "--healthy" in sys.argv
torch.manual_seed(0); torch.set_num_threads(1)
def log(step, loss):
    v = float(loss); print("step", step, "loss", v, flush=True); return math.isfinite(v) and abs(v) < 1e30
net = nn.Sequential(nn.Linear(16, 48), nn.LeakyReLU(.2), nn.Linear(48, 48), nn.LeakyReLU(.2), nn.Linear(48, 1)); opt = torch.optim.SGD(net.parameters(), .02, momentum=.9); w = torch.randn(16, 1) / 4
for step in range(400):
    x0 = torch.randn(64, 16); x = x0 * 1.03 ** step
    if H: x = x / x.std()
    loss = F.mse_loss(net(x), (x0 @ w).abs()); opt.zero_grad(); loss.backward(); opt.step()
    if not log(step, loss): break
