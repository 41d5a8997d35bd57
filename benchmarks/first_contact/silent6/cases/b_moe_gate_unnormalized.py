"""From KempnerInstitute/KempnerForge issue 117 and HomebrewML/Olmax issue 16 (router logits grow until the loss explodes).
Diverges: experts are weighted by the router's raw top logit, which grows together with what it multiplies, over four layers.
"""
import sys, math, copy, torch, torch.nn as nn, torch.nn.functional as F
H = "--healthy" in sys.argv
torch.manual_seed(0); torch.set_num_threads(1)
def log(step, loss):
    v = float(loss); print("step", step, "loss", v, flush=True); return math.isfinite(v) and abs(v) < 1e30
class MoE(nn.Module):
    def __init__(self, d=24, e=4): super().__init__(); self.g = nn.Linear(d, e); self.w = nn.Parameter(torch.randn(e, d, d) / d ** .5 * .3)
    def forward(self, x):
        l = self.g(x); v, i = (l.softmax(-1) if H else l.relu() + .1).max(-1); return x + v[:, None] * torch.einsum("bd,bdk->bk", x, self.w[i])
net = nn.Sequential(nn.Linear(12, 24), MoE(), MoE(), MoE(), MoE(), nn.Linear(24, 1)); opt = torch.optim.SGD(net.parameters(), .005, momentum=.9)
for step in range(400):
    x = torch.randn(64, 12); y = (x[:, :1] * x[:, 1:2]) * 2; loss = F.mse_loss(net(x), y); opt.zero_grad(); loss.backward(); opt.step()
    if not log(step, loss): break
