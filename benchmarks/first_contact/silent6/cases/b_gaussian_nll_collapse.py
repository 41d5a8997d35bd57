"""From ENSTA-U2IS-AI/LDU issue 10 in kind (a predicted uncertainty collapses); the loss is the usual Gaussian NLL.
Diverges: targets without noise let the predicted variance go to 0; a small error is then divided by next to nothing.
"""
import sys, math, copy, torch, torch.nn as nn, torch.nn.functional as F
H = "--healthy" in sys.argv
torch.manual_seed(0); torch.set_num_threads(1)
def log(step, loss):
    v = float(loss); print("step", step, "loss", v, flush=True); return math.isfinite(v) and abs(v) < 1e30
net = nn.Sequential(nn.Linear(4, 64), nn.ReLU(), nn.Linear(64, 64), nn.ReLU(), nn.Linear(64, 2)); opt = torch.optim.Adam(net.parameters(), 3e-3); w = torch.randn(4, 1) / 3
for step in range(400):
    x = torch.randn(128, 4) * (1 + 6 * max(0, step - 150) / 200); y = x @ w; m, lv = net(x).chunk(2, 1); lv = lv.clamp(min=-3) if H else lv
    loss = (.5 * ((y - m) ** 2 * (-lv).exp() + lv)).mean(); opt.zero_grad(); loss.backward(); opt.step()
    if not log(step, loss): break
