"""Invented (a momentum schedule): momentum goes from 0.5 to 1.06 in 300 steps; 0.95 was meant.
Diverges: the velocity grows without end once the factor has passed 1.
"""
import sys, math, copy, torch, torch.nn as nn, torch.nn.functional as F
H = "--healthy" in sys.argv
torch.manual_seed(0); torch.set_num_threads(1)
def log(step, loss):
    v = float(loss); print("step", step, "loss", v, flush=True); return math.isfinite(v) and abs(v) < 1e30
net = nn.Sequential(nn.Linear(10, 64), nn.LeakyReLU(.2), nn.Linear(64, 64), nn.LeakyReLU(.2), nn.Linear(64, 5)); opt = torch.optim.SGD(net.parameters(), .01, momentum=.5); w = torch.randn(10, 5) / 5
for step in range(450):
    opt.param_groups[0]["momentum"] = .5 + (.45 if H else .56) * min(1, step / 300)
    x = torch.randn(64, 10); loss = F.mse_loss(net(x), torch.sin(x @ w)); opt.zero_grad(); loss.backward(); opt.step()
    if not log(step, loss): break
