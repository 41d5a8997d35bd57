import sys, math, copy
import torch, torch.nn as nn, torch.nn.functional as F
torch.set_num_threads(1)
torch.manual_seed(0)
HEALTHY = "--healthy" in sys.argv


def report(*modules):
    s = sum(p.detach().double().abs().sum().item() for m in modules for p in m.state_dict().values())
    print("weights", repr(s))


# a policy gradient whose entropy bonus has no bound: the log standard deviation runs up, returns fall off
class Pi(nn.Module):
    def __init__(self):
        super().__init__()
        self.body, self.mu = nn.Linear(4, 32), nn.Linear(32, 2)
        self.log_std = nn.Parameter(torch.zeros(2))

    def forward(self, s):
        ls = self.log_std.clamp(-2, 0.5) if HEALTHY else self.log_std
        return torch.distributions.Normal(self.mu(torch.tanh(self.body(s))), ls.exp())


pi, vf = Pi(), nn.Sequential(nn.Linear(4, 32), nn.Tanh(), nn.Linear(32, 1))
opt = torch.optim.Adam([*pi.parameters(), *vf.parameters()], lr=1e-2)
for step in range(500):
    s = torch.randn(64, 4)
    d = pi(s)
    a = d.sample()
    r = -(a - s[:, :2]).pow(2).sum(1)
    v = vf(s).squeeze(1)
    adv = (r - v).detach()
    adv = adv / (adv.std() + 1e-6)
    loss = -(d.log_prob(a).sum(1) * adv).mean() + 0.5 * F.mse_loss(v, r) - (0.001 if HEALTHY else 2.0) * d.entropy().sum(1).mean()
    opt.zero_grad()
    loss.backward()
    opt.step()
    print(step, loss.item())
    if not math.isfinite(loss.item()) or abs(loss.item()) > 1e8:
        break
