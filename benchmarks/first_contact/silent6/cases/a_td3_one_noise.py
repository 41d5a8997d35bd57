"""From vwxyzjn/cleanrl issue 279.
Wrong: the smoothing noise has the shape of actions[0]: all samples of the batch get the same noise.
Could know: partly (one draw of a sample's shape is broadcast over the batch).
"""
import sys, copy, torch, torch.nn as nn, torch.nn.functional as F
H = "--healthy" in sys.argv
torch.manual_seed(0); torch.set_num_threads(1)
mk = lambda i, o, t=False: nn.Sequential(nn.Linear(i, 48), nn.ReLU(), nn.Linear(48, o), *([nn.Tanh()] if t else []))
actor, q1, q2 = mk(4, 2, True), mk(6, 1), mk(6, 1); target_actor, q1_target, q2_target = map(copy.deepcopy, (actor, q1, q2)); qo = torch.optim.Adam([*q1.parameters(), *q2.parameters()], 1e-3); ao = torch.optim.Adam(actor.parameters(), 1e-3)
obs = torch.randn(2000, 4); act = torch.rand(2000, 2) * 2 - 1; nobs = obs * .8 + torch.cat([act, act], 1) * .2; rew = -(nobs ** 2).mean(1); std = 0.
for step in range(200):
    i = torch.randint(0, 2000, (64,)); s, actions, s2, r = obs[i], act[i], nobs[i], rew[i]
    with torch.no_grad():
        noise = (torch.randn_like(actions if H else actions[0]) * .2).clamp(-.5, .5); std += (noise.std(0).mean().item() if noise.ndim > 1 else 0.) / 200
        a2 = (target_actor(s2) + noise).clamp(-1, 1); x2 = torch.cat([s2, a2], 1); y = r + .95 * torch.min(q1_target(x2), q2_target(x2)).view(-1)
    x = torch.cat([s, actions], 1); ql = F.mse_loss(q1(x).view(-1), y) + F.mse_loss(q2(x).view(-1), y); qo.zero_grad(); ql.backward(); qo.step()
    if step % 2 == 0:
        al = -q1(torch.cat([s, actor(s)], 1)).mean(); ao.zero_grad(); al.backward(); ao.step()
        for m, t in ((actor, target_actor), (q1, q1_target), (q2, q2_target)):
            for p, q in zip(m.parameters(), t.parameters()): q.data.copy_(.01 * p.data + .99 * q.data)
    if step % 25 == 0: print(step, round(ql.item(), 4), round(al.item(), 4))
print("check: std of the noise over the batch", std)
