"""From huggingface/trl issue 454 (the ratio explodes), for a continuous policy.
Diverges: a batch is used again and again without clipping the ratio; the policy's std shrinks, densities have no upper bound.
Lost: by the magnitude of the loss.
"""
import sys, math, copy, torch, torch.nn as nn, torch.nn.functional as F
H = "--healthy" in sys.argv
torch.manual_seed(0); torch.set_num_threads(1)
def log(step, loss):
    v = float(loss); print("step", step, "loss", v, flush=True); return math.isfinite(v) and abs(v) < 1e30
mu = nn.Sequential(nn.Linear(3, 32), nn.Tanh(), nn.Linear(32, 2)); ls = nn.Parameter(torch.zeros(2)); opt = torch.optim.Adam([*mu.parameters(), ls], 2e-3); S = torch.randn(256, 3); T = torch.tanh(S[:, :2])
with torch.no_grad(): m0 = mu(S); A = m0 + torch.randn(256, 2); L0 = torch.distributions.Normal(m0, 1.).log_prob(A).sum(1); R = -((A - T) ** 2).sum(1); adv = (R - R.min()) / R.std()
for step in range(400):
    if H and step % 10 == 0:
        with torch.no_grad(): m0 = mu(S); sd = ls.exp(); A = m0 + sd * torch.randn(256, 2); L0 = torch.distributions.Normal(m0, sd).log_prob(A).sum(1); R = -((A - T) ** 2).sum(1); adv = (R - R.min()) / R.std()
    r = (torch.distributions.Normal(mu(S), ls.exp()).log_prob(A).sum(1) - L0).exp()
    loss = -(torch.min(r * adv, r.clamp(.8, 1.2) * adv) if H else r * adv).mean(); opt.zero_grad(); loss.backward(); opt.step()
    if not log(step, loss): break
