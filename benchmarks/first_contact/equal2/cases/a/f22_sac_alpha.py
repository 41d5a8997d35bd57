# thu-ml/tianshou#676: SAC's temperature has an optimizer of its own, and neither it nor log_alpha is in the checkpoint
import copy, hashlib, os, sys
import torch
from torch import nn
fault = "--fault" in sys.argv
stop = int(sys.argv[sys.argv.index("--stop") + 1]) if "--stop" in sys.argv else 1000
torch.manual_seed(22)
class Actor(nn.Module):
    def __init__(self): super().__init__(); self.l = nn.Sequential(nn.Linear(3, 32), nn.ReLU(), nn.Linear(32, 2))
    def forward(self, s, eps): mu, ls = self.l(s).chunk(2, -1); std = ls.clamp(-5, 2).exp(); u = mu + std * eps; a = u.tanh(); return a, (-0.5 * eps ** 2 - std.log() - (1 - a ** 2 + 1e-6).log()).sum(-1)
actor = Actor(); critic = nn.Sequential(nn.Linear(4, 32), nn.ReLU(), nn.Linear(32, 1)); target = copy.deepcopy(critic); log_alpha = torch.zeros(1, requires_grad=True)
ao, co, lo = torch.optim.Adam(actor.parameters(), 3e-3), torch.optim.Adam(critic.parameters(), 3e-3), torch.optim.Adam([log_alpha], 5e-2); n = 0
if os.path.exists("policy.pth"):
    s = torch.load("policy.pth"); actor.load_state_dict(s["actor"]); critic.load_state_dict(s["critic"]); target.load_state_dict(s["target"]); ao.load_state_dict(s["ao"]); co.load_state_dict(s["co"]); n = s["n"]
    if not fault: log_alpha.data.copy_(s["log_alpha"]); lo.load_state_dict(s["lo"])
while n < stop:
    g = torch.Generator().manual_seed(n); s, s2, a, r = torch.randn(32, 3, generator=g), torch.randn(32, 3, generator=g), torch.rand(32, 1, generator=g) * 2 - 1, torch.randn(32, generator=g); e1, e2 = torch.randn(32, 1, generator=g), torch.randn(32, 1, generator=g)
    with torch.no_grad(): a2, lp2 = actor(s2, e1); y = r + 0.99 * (target(torch.cat([s2, a2], 1))[:, 0] - log_alpha.exp() * lp2)
    cl = (critic(torch.cat([s, a], 1))[:, 0] - y).square().mean(); co.zero_grad(); cl.backward(); co.step()
    na, lp = actor(s, e2); al = (log_alpha.exp().detach() * lp - critic(torch.cat([s, na], 1))[:, 0]).mean(); ao.zero_grad(); al.backward(); ao.step()
    tl = -(log_alpha * (lp.detach() - 1.0)).mean(); lo.zero_grad(); tl.backward(); lo.step()
    for p, q in zip(target.parameters(), critic.parameters()): p.data.lerp_(q.data, 0.01)
    n += 1; print(n, repr(cl.item()), repr(al.item()), repr(log_alpha.item()), flush=True)
    if n % 5 == 0: torch.save({"actor": actor.state_dict(), "critic": critic.state_dict(), "target": target.state_dict(), "ao": ao.state_dict(), "co": co.state_dict(), "lo": lo.state_dict(), "log_alpha": log_alpha.detach().clone(), "n": n}, "policy.pth")
print("end", hashlib.sha256(b"".join(p.detach().numpy().tobytes() for m in (actor, critic, target) for p in m.parameters())).hexdigest()[:16])
