import sys, math, copy
import torch, torch.nn as nn, torch.nn.functional as F
torch.set_num_threads(1)
torch.manual_seed(0)
HEALTHY = "--healthy" in sys.argv


def report(*modules):
    s = sum(p.detach().double().abs().sum().item() for m in modules for p in m.state_dict().values())
    print("weights", repr(s))


# tensorflow/agents 651: advantages of one trajectory are normalized over the batch axis of size 1: all zero
actor = nn.Sequential(nn.Linear(6, 32), nn.Tanh(), nn.Linear(32, 3))
critic = nn.Sequential(nn.Linear(6, 32), nn.Tanh(), nn.Linear(32, 1))
opt = torch.optim.Adam([*actor.parameters(), *critic.parameters()], lr=1e-3)
for it in range(110):
    s = torch.randn(1, 40, 6)
    d = torch.distributions.Categorical(logits=actor(s))
    a = d.sample()
    r = (a == (s[..., 0] > 0).long() + (s[..., 1] > 0).long()).float()
    v = critic(s).squeeze(-1)
    adv = (r - v).detach()
    dims = (0, 1) if HEALTHY else (0,)
    adv = (adv - adv.mean(dims, keepdim=True)) / (adv.var(dims, keepdim=True, unbiased=False) + 1e-8).sqrt()
    loss = -(d.log_prob(a) * adv).mean() + 0.5 * F.mse_loss(v, r)
    opt.zero_grad()
    loss.backward()
    opt.step()
    if it % 20 == 0:
        print(it, r.mean().item(), loss.item())
report(actor, critic)
