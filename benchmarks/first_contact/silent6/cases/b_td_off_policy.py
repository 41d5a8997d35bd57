"""From facebookresearch/ReAgent issue 189 (TD loss diverging); the mechanism is that of Tsitsiklis and Van Roy.
Diverges: off-policy TD updates with a function approximator that bootstraps on states that are never updated themselves.
"""
import sys, math, copy, torch, torch.nn as nn, torch.nn.functional as F
H = "--healthy" in sys.argv
torch.manual_seed(0); torch.set_num_threads(1)
def log(step, loss):
    v = float(loss); print("step", step, "loss", v, flush=True); return math.isfinite(v) and abs(v) < 1e30
net = nn.Sequential(nn.Linear(6, 24, bias=False), nn.Linear(24, 1, bias=False)); opt = torch.optim.SGD(net.parameters(), .004); W = torch.randn(6, 1) * .1
for step in range(500):
    s = torch.rand(64, 6); s2 = 2 * s; r = s @ W
    if H: m = (torch.rand(64, 1) < .9); s = torch.where(m, s2, s); r = torch.where(m, 0 * r, r)      # states are visited as the policy visits them
    with torch.no_grad(): y = r + .9 * net(s2)
    loss = F.mse_loss(net(s), y); opt.zero_grad(); loss.backward(); opt.step()
    if not log(step, loss): break
