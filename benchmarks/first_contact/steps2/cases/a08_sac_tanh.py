import torch, torch.nn.functional as F
from torch import nn
torch.manual_seed(0)

def ok(step, loss, *models):
    ps = [p for m in models for p in m.parameters()]
    print(step, "loss", bool(torch.isfinite(loss.detach()).all()), "grads", all(p.grad is None or bool(p.grad.isfinite().all()) for p in ps),
          "weights", all(bool(p.isfinite().all()) for p in ps), flush=True)

class Actor(nn.Module):
    def __init__(self):
        super().__init__(); self.mu, self.log_std = nn.Linear(4, 2), nn.Linear(4, 2)
    def forward(self, s):
        mu, std = self.mu(s), self.log_std(s).clamp(-5, 2).exp()
        u = mu + std * torch.randn_like(mu)
        a = torch.tanh(u)
        logp = (-0.5 * ((u - mu) / std) ** 2 - std.log()).sum(-1) - torch.log(1 - a.pow(2)).sum(-1)
        return a, logp
actor, critic = Actor(), nn.Linear(6, 1)
opt = torch.optim.Adam(actor.parameters(), 1e-3); copt = torch.optim.Adam(critic.parameters(), 1e-3)
for step in range(4):
    s = torch.randn(8, 4) * (30 if step == 2 else 0.5)
    a, logp = actor(s)
    loss = (0.2 * logp - critic(torch.cat([s, a], -1))[:, 0]).mean()
    opt.zero_grad(); loss.backward(); opt.step()
    closs = critic(torch.cat([s, a.detach()], -1)).square().mean()
    copt.zero_grad(); closs.backward(); copt.step()
    ok(step, loss, actor, critic)
