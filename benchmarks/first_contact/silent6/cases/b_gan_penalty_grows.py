"""From phillipi/pix2pix issue 121 (WGAN-GP becomes unstable and nan).
Diverges: the weight of the gradient penalty is raised by 1.2 % a step while the critic's plain SGD keeps its rate: the penalty's second
derivatives make the steps unstable.  Lost: by the magnitude of the loss.
"""
import sys, math, copy, torch, torch.nn as nn, torch.nn.functional as F
H = "--healthy" in sys.argv
torch.manual_seed(0); torch.set_num_threads(1)
def log(step, loss):
    v = float(loss); print("step", step, "loss", v, flush=True); return math.isfinite(v) and abs(v) < 1e30
G = nn.Sequential(nn.Linear(4, 48), nn.ReLU(), nn.Linear(48, 2)); D = nn.Sequential(nn.Linear(2, 48), nn.LeakyReLU(.2), nn.Linear(48, 48), nn.LeakyReLU(.2), nn.Linear(48, 1)); og = torch.optim.Adam(G.parameters(), 1e-3, (.5, .9)); od = torch.optim.SGD(D.parameters(), .002, momentum=.9); s = 1.
for step in range(400):
    if not H: s *= 1.012
    x = torch.randn(64, 2) * .5 + torch.randint(0, 2, (64, 1)) * 2 - 1; f = G(torch.randn(64, 4)).detach(); t = torch.rand(64, 1); m = (t * x + (1 - t) * f).requires_grad_(); g, = torch.autograd.grad(D(m).sum(), m, create_graph=True)
    ld = D(f).mean() - D(x).mean() + 10 * s * ((g.norm(dim=1) - 1) ** 2).mean(); od.zero_grad(); ld.backward(); od.step()
    if step % 3 == 0: lg = -D(G(torch.randn(64, 4))).mean(); og.zero_grad(); lg.backward(); og.step()
    if not log(step, ld): break
