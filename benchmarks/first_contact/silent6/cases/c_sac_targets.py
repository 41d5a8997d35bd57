"""Healthy: a small SAC: two critics with slow targets, a learned temperature, three optimizers, actor loss through frozen critics.  500 steps."""
import sys, math, copy, random, torch, torch.nn as nn, torch.nn.functional as F
torch.manual_seed(0); random.seed(0); torch.set_num_threads(1)
mk = lambda i, o: nn.Sequential(nn.Linear(i, 48), nn.ReLU(), nn.Linear(48, o))
actor, q1, q2 = mk(3, 2), mk(4, 1), mk(4, 1); t1, t2 = copy.deepcopy(q1).requires_grad_(False), copy.deepcopy(q2).requires_grad_(False); log_alpha = torch.zeros(1, requires_grad=True)
oa, oq, ol = torch.optim.Adam(actor.parameters(), 1e-3), torch.optim.Adam([*q1.parameters(), *q2.parameters()], 2e-3), torch.optim.Adam([log_alpha], 2e-3)
def act(s): m, l = actor(s).chunk(2, 1); d = torch.distributions.Normal(m, l.clamp(-4, 1).exp()); u = d.rsample(); a = torch.tanh(u); return a, (d.log_prob(u) - torch.log(1 - a ** 2 + 1e-6)).sum(1)
S = torch.randn(3000, 3); A = torch.rand(3000, 1) * 2 - 1; S2 = .9 * S + .2 * A; R = 1 - S2.abs().mean(1)
for step in range(500):
    i = torch.randint(0, 3000, (64,)); s, a, s2, r = S[i], A[i], S2[i], R[i]; al = log_alpha.exp().detach()
    with torch.no_grad(): a2, lp = act(s2); x = torch.cat([s2, a2], 1); y = r + .95 * (torch.min(t1(x), t2(x)).squeeze(1) - al * lp)
    x = torch.cat([s, a], 1); lq = F.mse_loss(q1(x).squeeze(1), y) + F.mse_loss(q2(x).squeeze(1), y); oq.zero_grad(); lq.backward(); oq.step()
    for p in [*q1.parameters(), *q2.parameters()]: p.requires_grad_(False)
    an, lp = act(s); x = torch.cat([s, an], 1); la = (al * lp - torch.min(q1(x), q2(x)).squeeze(1)).mean(); oa.zero_grad(); la.backward(); oa.step()
    for p in [*q1.parameters(), *q2.parameters()]: p.requires_grad_(True)
    ll = -(log_alpha * (lp.detach() - 1.)).mean(); ol.zero_grad(); ll.backward(); ol.step()
    with torch.no_grad():
        for q, t in ((q1, t1), (q2, t2)): [b.lerp_(p, .01) for b, p in zip(t.parameters(), q.parameters())]
    if step % 50 == 0: print(step, lq.item(), la.item(), log_alpha.exp().item())
