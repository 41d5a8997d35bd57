import sys, math, copy
import torch, torch.nn as nn, torch.nn.functional as F
torch.set_num_threads(1)
torch.manual_seed(0)
HEALTHY = "--healthy" in sys.argv


def report(*modules):
    s = sum(p.detach().double().abs().sum().item() for m in modules for p in m.state_dict().values())
    print("weights", repr(s))


# DeepRL_Algorithms 13: advantages (B, 1) times ratios (B,)
actor = nn.Sequential(nn.Linear(6, 32), nn.Tanh(), nn.Linear(32, 3))
critic = nn.Sequential(nn.Linear(6, 32), nn.Tanh(), nn.Linear(32, 1))
opt = torch.optim.Adam([*actor.parameters(), *critic.parameters()], lr=1e-3)
for it in range(30):
    s = torch.randn(64, 6)
    with torch.no_grad():
        d = torch.distributions.Categorical(logits=actor(s))
        a = d.sample()
        old = d.log_prob(a)
        r = (a == (s[:, 0] > 0).long() + (s[:, 1] > 0).long()).float().unsqueeze(1)
        adv = r - critic(s)
        adv = (adv - adv.mean()) / (adv.std() + 1e-8)
    for _ in range(3):
        d = torch.distributions.Categorical(logits=actor(s))
        ratio = (d.log_prob(a) - old).exp()
        A = adv.reshape(-1) if HEALTHY else adv
        pl = -torch.min(ratio * A, ratio.clamp(0.8, 1.2) * A).mean()
        loss = pl + 0.5 * F.mse_loss(critic(s), r)
        opt.zero_grad()
        loss.backward()
        opt.step()
    print(it, r.mean().item(), loss.item())
report(actor, critic)
