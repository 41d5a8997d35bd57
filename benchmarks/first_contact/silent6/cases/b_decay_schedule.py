"""Invented (a rising weight-decay schedule as in DINO, whose values were already multiplied by 1 / lr).
Diverges: with lr * weight_decay above 2, AdamW multiplies each weight by a factor below -1 at each step.
"""
import sys, math, copy, torch, torch.nn as nn, torch.nn.functional as F
H = "--healthy" in sys.argv
torch.manual_seed(0); torch.set_num_threads(1)
def log(step, loss):
    v = float(loss); print("step", step, "loss", v, flush=True); return math.isfinite(v) and abs(v) < 1e30
net = nn.Sequential(nn.Linear(12, 64), nn.GELU(), nn.Linear(64, 64), nn.GELU(), nn.Linear(64, 3)); opt = torch.optim.AdamW(net.parameters(), 5e-3, weight_decay=.0); w = torch.randn(12, 3)
for step in range(350):
    wd = .04 + (.4 - .04) * (1 - math.cos(math.pi * step / 350)) / 2; opt.param_groups[0]["weight_decay"] = wd if H else (wd - .04) / .005 * 12
    x = torch.randn(64, 12); loss = F.cross_entropy(net(x), (x @ w).argmax(1)); opt.zero_grad(); loss.backward(); opt.step()
    if not log(step, loss): break
