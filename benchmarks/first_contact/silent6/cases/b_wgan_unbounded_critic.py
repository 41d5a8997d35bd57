"""From torchgan/torchgan pull 42 (the clipping was missing; also archsyscall/GANs-TensorFlow2 issue 2).
Diverges: a Wasserstein critic without clipping or penalty: its loss falls without bound, and the generator follows.
Lost: by the magnitude of the loss.
"""
import sys, math, copy, torch, torch.nn as nn, torch.nn.functional as F
H = "--healthy" in sys.argv
torch.manual_seed(0); torch.set_num_threads(1)
def log(step, loss):
    v = float(loss); print("step", step, "loss", v, flush=True); return math.isfinite(v) and abs(v) < 1e30
G = nn.Sequential(nn.Linear(8, 64), nn.ReLU(), nn.Linear(64, 2)); D = nn.Sequential(nn.Linear(2, 64), nn.ReLU(), nn.Linear(64, 64), nn.ReLU(), nn.Linear(64, 1))
og, od = torch.optim.RMSprop(G.parameters(), 5e-5), torch.optim.RMSprop(D.parameters(), 4e-5)
for step in range(400):
    x = torch.randn(64, 2) * .5 + torch.tensor([1., -1.]); f = G(torch.randn(64, 8)).detach(); ld = D(f).mean() - D(x).mean(); od.zero_grad(); ld.backward(); od.step()
    if H:
        with torch.no_grad(): [p.clamp_(-.08, .08) for p in D.parameters()]
    if step % 3 == 0: lg = -D(G(torch.randn(64, 8))).mean(); og.zero_grad(); lg.backward(); og.step()
    if not log(step, ld): break
