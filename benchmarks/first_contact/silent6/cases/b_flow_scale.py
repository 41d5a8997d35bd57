"""From VincentStimper/normalizing-flows issue 73 (also paultsw/nice_pytorch issue 2, andreas128/SRFlow issue 2).
Diverges: the log-scales of the affine couplings are unbounded; on data that lie on a thin set they grow until exp() overflows.
"""
import sys, math, copy, torch, torch.nn as nn, torch.nn.functional as F
H = "--healthy" in sys.argv
torch.manual_seed(0); torch.set_num_threads(1)
def log(step, loss):
    v = float(loss); print("step", step, "loss", v, flush=True); return math.isfinite(v) and abs(v) < 1e30
class C(nn.Module):
    def __init__(self, flip): super().__init__(); self.f = flip; self.n = nn.Sequential(nn.Linear(2, 64), nn.ReLU(), nn.Linear(64, 64), nn.ReLU(), nn.Linear(64, 4)); nn.init.zeros_(self.n[-1].weight); nn.init.zeros_(self.n[-1].bias)
    def forward(self, x):
        a, b = x.chunk(2, 1); a, b = (b, a) if self.f else (a, b); s, t = self.n(a).chunk(2, 1); s = 1.5 * torch.tanh(s) if H else s
        b = b * s.exp() + t; return torch.cat([b, a] if self.f else [a, b], 1), s.sum(1)
flow = nn.ModuleList(C(i % 2) for i in range(6)); opt = torch.optim.Adam(flow.parameters(), 7e-4)
for step in range(400):
    u = torch.randn(128, 1); x = torch.cat([u, torch.sin(2 * u), u ** 2, torch.cos(3 * u)], 1) * .7; ld = 0.
    for c in flow: x, l = c(x); ld = ld + l
    loss = (.5 * (x ** 2).sum(1) - ld).mean(); opt.zero_grad(); loss.backward(); opt.step()
    if not log(step, loss): break
