import sys, math, copy
import torch, torch.nn as nn, torch.nn.functional as F
torch.set_num_threads(1)
torch.manual_seed(0)
HEALTHY = "--healthy" in sys.argv


def report(*modules):
    s = sum(p.detach().double().abs().sum().item() for m in modules for p in m.state_dict().values())
    print("weights", repr(s))


# trl 744 / 3234, trlx 508: dropout is on when ratios are computed, off when the old log-probabilities were
policy = nn.Sequential(nn.Linear(6, 48), nn.Tanh(), nn.Dropout(0.0 if HEALTHY else 0.3), nn.Linear(48, 3))
opt = torch.optim.Adam(policy.parameters(), lr=1e-3)
for it in range(40):
    s = torch.randn(64, 6)
    policy.eval()
    with torch.no_grad():
        d = torch.distributions.Categorical(logits=policy(s))
        a = d.sample()
        old = d.log_prob(a)
    adv = (a == (s[:, 0] > 0).long() + (s[:, 1] > 0).long()).float()
    adv = (adv - adv.mean()) / (adv.std() + 1e-8)
    policy.train()
    for _ in range(3):
        ratio = (torch.distributions.Categorical(logits=policy(s)).log_prob(a) - old).exp()
        loss = -torch.min(ratio * adv, ratio.clamp(0.8, 1.2) * adv).mean()
        opt.zero_grad()
        loss.backward()
        opt.step()
    if it % 10 == 0:
        print(it, loss.item(), ratio.mean().item())
report(policy)
