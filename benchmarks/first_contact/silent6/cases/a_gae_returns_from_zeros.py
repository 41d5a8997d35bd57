"""From vwxyzjn/cleanrl pull 337.
Wrong: returns = storage.advantages + storage.values, while storage.advantages is still zero: the critic's targets are its own old values.
Could know: partly (the critic's loss begins each epoch at exactly 0, and its first gradients are exactly zero).
"""
import sys, torch, torch.nn as nn, torch.nn.functional as F
from torch.distributions import Categorical
H = "--healthy" in sys.argv
torch.manual_seed(0); torch.set_num_threads(1)
actor = nn.Sequential(nn.Linear(3, 32), nn.Tanh(), nn.Linear(32, 2)); critic = nn.Sequential(nn.Linear(3, 32), nn.Tanh(), nn.Linear(32, 1))
opt = torch.optim.Adam([*actor.parameters(), *critic.parameters()], 3e-3); w0 = critic[0].weight.detach().clone(); T, N = 16, 16; vl = []
s = torch.randn(N, 3)
for it in range(30):
    st = dict(obs=torch.zeros(T, N, 3), act=torch.zeros(T, N, dtype=torch.long), logp=torch.zeros(T, N), val=torch.zeros(T, N), rew=torch.zeros(T, N), advantages=torch.zeros(T, N))
    with torch.no_grad():
        for t in range(T):
            d = Categorical(logits=actor(s)); a = d.sample(); st["obs"][t], st["act"][t], st["logp"][t], st["val"][t] = s, a, d.log_prob(a), critic(s).squeeze(1)
            s = .9 * s + .2 * (2 * a[:, None].float() - 1) + .2 * torch.randn(N, 3); st["rew"][t] = 1 - s.abs().mean(1)
        nv, lg, adv = critic(s).squeeze(1), 0., torch.zeros(T, N)
        for t in reversed(range(T)): delta = st["rew"][t] + .95 * nv - st["val"][t]; lg = delta + .95 * .95 * lg; adv[t] = lg; nv = st["val"][t]
        ret = (adv if H else st["advantages"]) + st["val"]; st["advantages"] = adv
    o, a, l, A, R = st["obs"].view(-1, 3), st["act"].view(-1), st["logp"].view(-1), adv.view(-1), ret.view(-1); A = (A - A.mean()) / (A.std() + 1e-8)
    for ep in range(4):
        d = Categorical(logits=actor(o)); r = (d.log_prob(a) - l).exp(); pl = -torch.min(r * A, r.clamp(.8, 1.2) * A).mean(); v_loss = F.mse_loss(critic(o).squeeze(1), R); loss = pl + .5 * v_loss - .01 * d.entropy().mean(); opt.zero_grad(); loss.backward(); opt.step(); vl.append(v_loss.item())
    if it % 5 == 0: print(it, round(loss.item(), 4), v_loss.item())
print("check: critic's loss (mean)", sum(vl) / len(vl), "its weights moved by", (critic[0].weight - w0).abs().max().item())
