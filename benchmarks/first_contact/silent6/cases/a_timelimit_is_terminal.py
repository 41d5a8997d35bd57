"""From openai/baselines issue 436.
Wrong: done=True of the time limit is taken for a terminal state, so the critic learns that the last state within the limit is worth its
reward alone.  Could know: no.
"""
import sys, copy, torch, torch.nn as nn, torch.nn.functional as F
H = "--healthy" in sys.argv
torch.manual_seed(0); torch.set_num_threads(1)
actor = nn.Sequential(nn.Linear(3, 32), nn.Tanh(), nn.Linear(32, 1), nn.Tanh()); critic = nn.Sequential(nn.Linear(4, 64), nn.Tanh(), nn.Linear(64, 1)); at, ct = copy.deepcopy(actor), copy.deepcopy(critic)
oa, oc = torch.optim.Adam(actor.parameters(), 1e-3), torch.optim.Adam(critic.parameters(), 3e-3); B = []
def env_step(s, a, t): s2 = .9 * s + .1 * a; return s2, 1 - s2.pow(2).mean(), t + 1 >= 5      # never ends by itself; the wrapper ends it after 5 steps
s, t = torch.randn(3), 0
for step in range(500):
    with torch.no_grad(): a = (actor(s) + .3 * torch.randn(1)).clamp(-1, 1)
    s2, r, done = env_step(s, a, t); B.append((s, a, r, s2, torch.tensor(float(done)))); s, t = (torch.randn(3), 0) if done else (s2, t + 1)
    if step < 64: continue
    idx = torch.randint(0, len(B), (64,)); S, A, R, S2, D = (torch.stack(v) for v in zip(*(B[i] for i in idx)))
    with torch.no_grad(): y = R + .95 * ct(torch.cat([S2, at(S2)], 1)).squeeze(1) * (1 if H else 1 - D)
    lc = F.mse_loss(critic(torch.cat([S, A], 1)).squeeze(1), y); oc.zero_grad(); lc.backward(); oc.step()
    la = -critic(torch.cat([S, actor(S)], 1)).mean(); oa.zero_grad(); la.backward(); oa.step()
    with torch.no_grad():
        for m, n in ((actor, at), (critic, ct)):
            for p, q in zip(m.parameters(), n.parameters()): q.lerp_(p, .02)
    if step % 50 == 0: print(step, round(lc.item(), 4), round(la.item(), 4))
with torch.no_grad(): z = torch.zeros(1, 3); print("check: value of the best state (true about 20, rising):", critic(torch.cat([z, actor(z)], 1)).item())
