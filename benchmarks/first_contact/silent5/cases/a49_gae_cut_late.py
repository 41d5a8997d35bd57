import sys, math, copy
import torch, torch.nn as nn, torch.nn.functional as F
torch.set_num_threads(1)
torch.manual_seed(0)
HEALTHY = "--healthy" in sys.argv


def report(*modules):
    s = sum(p.detach().double().abs().sum().item() for m in modules for p in m.state_dict().values())
    print("weights", repr(s))


# Mighty 126: GAE cuts at the end of an episode one step too late
actor = nn.Sequential(nn.Linear(4, 32), nn.Tanh(), nn.Linear(32, 2))
critic = nn.Sequential(nn.Linear(4, 32), nn.Tanh(), nn.Linear(32, 1))
opt = torch.optim.Adam([*actor.parameters(), *critic.parameters()], lr=1e-3)
for it in range(30):
    s, S, A, R, D = torch.randn(4), [], [], [], []
    with torch.no_grad():
        for t in range(64):
            a = torch.distributions.Categorical(logits=actor(s)).sample()
            s2 = 0.9 * s + 0.3 * torch.randn(4) + (0.2 if a else -0.2)
            done = bool(torch.rand(()) < 0.1)
            S.append(s); A.append(a); R.append(float(s2[0])); D.append(float(done))
            s = torch.randn(4) if done else s2
        S, A = torch.stack(S), torch.stack(A)
        V = torch.cat([critic(S).squeeze(1), critic(s[None]).squeeze(1)])
        adv, last = torch.zeros(64), 0.0
        for t in reversed(range(64)):
            nd = 1 - (D[t] if HEALTHY else D[min(t + 1, 63)])
            last = R[t] + 0.99 * V[t + 1] * nd - V[t] + 0.99 * 0.95 * nd * last
            adv[t] = last
        ret = adv + V[:-1]
        old = torch.distributions.Categorical(logits=actor(S)).log_prob(A)
        adv = (adv - adv.mean()) / (adv.std() + 1e-8)
    for _ in range(4):
        ratio = (torch.distributions.Categorical(logits=actor(S)).log_prob(A) - old).exp()
        loss = -torch.min(ratio * adv, ratio.clamp(0.8, 1.2) * adv).mean() + 0.5 * F.mse_loss(critic(S).squeeze(1), ret)
        opt.zero_grad()
        loss.backward()
        opt.step()
    if it % 10 == 0:
        print(it, loss.item())
report(actor, critic)
