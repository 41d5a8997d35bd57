"""leggedrobotics/rsl_rl#190 (importance ratios overflow): exp of the log-ratio exceeds float32
TRUTH op=aten.exp reason=exp overflow"""
import sys
import torch
from torch import nn
import torch.nn.functional as F
from _util import done
CURED = "--cured" in sys.argv
torch.manual_seed(0); torch.set_num_threads(1)

class AC(nn.Module):
    def __init__(self):
        super().__init__(); self.l = nn.LSTM(6, 16, batch_first=True); self.pi, self.v = nn.Linear(16, 4), nn.Linear(16, 1)
    def forward(self, s):
        h, _ = self.l(s); return self.pi(h), self.v(h).squeeze(-1)
net = AC(); opt = torch.optim.Adam(net.parameters(), 1e-3)
for it in range(4):
    s = torch.randn(4, 10, 6)
    with torch.no_grad():
        d = torch.distributions.Categorical(logits=net(s)[0]); a = d.sample(); old = d.log_prob(a)
        if it == 2: old[0, 3] = -130.0   # behaviour policy of a stale actor
        adv = torch.randn(4, 10); adv[0, 3] = -1.0
    logits, v = net(s)
    lp = torch.distributions.Categorical(logits=logits).log_prob(a)
    lr = (lp - old).clamp(max=20 if CURED else 1e9)
    ratio = torch.exp(lr)  # FAULT
    loss = -torch.min(ratio * adv, ratio.clamp(0.8, 1.2) * adv).mean() + 0.5 * (v - adv).pow(2).mean()
    opt.zero_grad(); loss.backward(); nn.utils.clip_grad_norm_(net.parameters(), 0.5); opt.step(); print(it, loss.item())
done(loss.detach(), net)
