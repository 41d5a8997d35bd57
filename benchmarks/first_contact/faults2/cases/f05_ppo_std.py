"""leggedrobotics/rsl_rl#190: std = exp(log_std) underflows to exactly zero, the log-probability is 0/0
TRUTH op=aten.div reason=division by zero"""
import sys
import torch
from torch import nn
import torch.nn.functional as F
from _util import done
CURED = "--cured" in sys.argv
torch.manual_seed(0); torch.set_num_threads(1)

class Policy(nn.Module):
    def __init__(self):
        super().__init__()
        self.mu = nn.Sequential(nn.Linear(8, 32), nn.ELU(), nn.Linear(32, 2)); self.v = nn.Linear(8, 1)
        self.log_std = nn.Parameter(torch.tensor([0.0, -60.0]))
    def log_prob(self, s, a):
        std = self.log_std.clamp(min=-10 if CURED else -1e9).exp()
        var = std ** 2
        q = (a - self.mu(s)) ** 2 / (2 * var)  # FAULT
        return (-q - 0.5 * var.clamp(min=1e-30).log()).sum(-1)
pi = Policy(); opt = torch.optim.Adam(pi.parameters(), 1e-3)
for it in range(3):
    s = torch.randn(32, 8)
    with torch.no_grad():
        a = pi.mu(s); adv = torch.randn(32)
        old = torch.zeros(32)
    for ep in range(2):
        ratio = (pi.log_prob(s, a) - old).clamp(-5, 5).exp()
        loss = -torch.min(ratio * adv, ratio.clamp(0.8, 1.2) * adv).mean() + F.mse_loss(pi.v(s).squeeze(1), adv)
        opt.zero_grad(); loss.backward(); opt.step(); print(it, ep, loss.item())
done(loss.detach(), pi)
