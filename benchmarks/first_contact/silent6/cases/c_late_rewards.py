"""Healthy: REINFORCE with a baseline on a chain whose reward is at its end only: for a long time all returns are 0 and gradients tiny.
500 updates."""
import sys, math, copy, random, torch, torch.nn as nn, torch.nn.functional as F
torch.manual_seed(0); random.seed(0); torch.set_num_threads(1)
pi = nn.Sequential(nn.Linear(7, 32), nn.Tanh(), nn.Linear(32, 2)); opt = torch.optim.Adam(pi.parameters(), 1e-2); base = 0.
for it in range(500):
    lps, ents, R = [], [], []
    s = torch.zeros(8, dtype=torch.long); lp = torch.zeros(8); ent = 0.
    for t in range(10):
        d = torch.distributions.Categorical(logits=pi(F.one_hot(s, 7).float())); a = d.sample(); lp = lp + d.log_prob(a); ent = ent + d.entropy().mean(); s = (s + 2 * a - 1).clamp(0, 6)
    R = (s == 6).float(); adv = R - base; base = .9 * base + .1 * R.mean().item(); loss = -(adv * lp).mean() - .003 * ent; opt.zero_grad(); loss.backward(); opt.step()
    if it % 50 == 0: print(it, loss.item(), R.mean().item())
