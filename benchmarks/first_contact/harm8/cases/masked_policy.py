# what: PPO-like policy with invalid actions at -inf logits: log-probs of -inf, entropy by where, all actions invalid in one padded state
# benign: yes
# PRELUDE
from torch.distributions import Categorical
class Pol(nn.Module):
    def __init__(self): super().__init__(); self.f = nn.Sequential(nn.Linear(8, 16), nn.Tanh()); self.p, self.v = nn.Linear(16, 5), nn.Linear(16, 1)
    def forward(self, x, k): h = self.f(x); return self.p(h).masked_fill(~k, -float("inf")), self.v(h)[:, 0]
m = Pol(); W(m); opt = torch.optim.Adam(m.parameters(), lr=.01)
for s in range(5):
    x, _ = batch(s); k = torch.rand(6, 5, generator=torch.Generator().manual_seed(s)) > .4; k[:, 0] = True
    with torch.no_grad():
        k2 = k.clone(); k2[5] = False; lg, v = m(x, k2); print(lg.softmax(-1).isnan().any(1).sum().item(), (lg.softmax(-1) * lg.log_softmax(-1)).isnan().sum().item()); lg, v = m(x, k); a = Categorical(logits=lg).sample(); old = Categorical(logits=lg).log_prob(a); adv = torch.where(a == 0, 1., -1.) - v
    for _ in range(2):
        lg, v = m(x, k); lp = lg.log_softmax(-1); ent = -(lp.exp() * torch.where(k, lp, 0.)).sum(-1); r = (lp.gather(1, a[:, None])[:, 0] - old).exp(); l = -torch.min(r * adv, r.clamp(.8, 1.2) * adv).mean() + .5 * (v - 1).pow(2).mean() - .01 * ent.mean(); opt.zero_grad(); l.backward(); opt.step(); print(float(l.detach()).hex(), a.tolist())
print(M(m), R())
