"""Invented (unlearning by gradient ascent on a forget set, without a bound or a retain term that holds).
Diverges: the loss to be maximized has no bound: minus the cross-entropy falls ever faster, and what is to be retained is lost with it.
Lost: by the loss on the data to be retained, which is what is printed.
"""
import sys, math, copy, torch, torch.nn as nn, torch.nn.functional as F
H = "--healthy" in sys.argv
torch.manual_seed(0); torch.set_num_threads(1)
def log(step, loss):
    v = float(loss); print("step", step, "loss", v, flush=True); return math.isfinite(v) and abs(v) < 1e30
net = nn.Sequential(nn.Linear(16, 64), nn.ReLU(), nn.Linear(64, 64), nn.ReLU(), nn.Linear(64, 6)); opt = torch.optim.Adam(net.parameters(), 2e-3); c = torch.randn(6, 16)
def b(k, n=64): y = torch.randint(*k, (n,)); return c[y] + .8 * torch.randn(n, 16), y
for step in range(400):
    x, y = b((1, 6)); keep = F.cross_entropy(net(x), y); loss = keep
    if step >= 150:
        xf, yf = b((0, 1), 16); f = F.cross_entropy(net(xf), yf); loss = keep + (-f.clamp(max=3.) if H else -2 * f)
    opt.zero_grad(); loss.backward(); opt.step()
    if not log(step, keep): break
