"""From thu-ml/tianshou issue 309.
Wrong: the maximum over the next state's actions runs over illegal ones too; only the present state's mask is used.  Could know: no.
"""
import sys, copy, torch, torch.nn as nn, torch.nn.functional as F
H = "--healthy" in sys.argv
torch.manual_seed(0); torch.set_num_threads(1)
S, A, N = 8, 6, 400; rew = torch.rand(N, A); nxt = torch.randint(0, N, (N, A)); obs = torch.randn(N, S); legal = torch.rand(N, A) < .4; legal[:, 0] = True
q = nn.Sequential(nn.Linear(S, 96), nn.ReLU(), nn.Linear(96, A)); tgt = copy.deepcopy(q); opt = torch.optim.Adam(q.parameters(), 1e-3); over = 0.
for step in range(200):
    s = torch.randint(0, N, (64,)); a = torch.multinomial(legal[s].float(), 1).squeeze(1); s2 = nxt[s, a]
    with torch.no_grad():
        qn = tgt(obs[s2]); best = qn.masked_fill(~legal[s2], -1e9).max(1).values
        y = rew[s, a] + .8 * (best if H else qn.max(1).values); over += (qn.max(1).values - best).mean().item() / 200
    loss = F.smooth_l1_loss(q(obs[s]).gather(1, a[:, None]).squeeze(1), y); opt.zero_grad(); loss.backward(); opt.step()
    with torch.no_grad():
        for p, t in zip(q.parameters(), tgt.parameters()): t.lerp_(p, .05)
    if step % 25 == 0: print(step, round(loss.item(), 4))
with torch.no_grad(): print("check: mean legal value", q(obs).masked_fill(~legal, -1e9).max(1).values.mean().item(), "overestimate per target by illegal actions", over)
