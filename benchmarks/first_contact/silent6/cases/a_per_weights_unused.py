"""From danaugrs/huskarl issue 11 (also tensorforce/tensorforce issue 267).
Wrong: prioritized replay returns importance weights, and the loss does not use them: rare transitions of large error bias the values.
Could know: no (a tensor that is returned and dropped).
"""
import sys, copy, torch, torch.nn as nn, torch.nn.functional as F
H = "--healthy" in sys.argv
torch.manual_seed(0); torch.set_num_threads(1)
N = 1000; obs = torch.randn(N, 4); truth = obs.sum(1); rew = truth + (torch.rand(N) < .05).float() * 20.      # rare jackpots: the mean is truth + 1
q = nn.Sequential(nn.Linear(4, 48), nn.ReLU(), nn.Linear(48, 1)); opt = torch.optim.Adam(q.parameters(), 3e-3); prio = torch.ones(N)
def sample(n, alpha=.8, beta=1.):
    p = prio ** alpha; p = p / p.sum(); i = torch.multinomial(p, n); w = (N * p[i]) ** -beta; return i, w / w.max()
for step in range(300):
    i, w = sample(64); td = rew[i] - q(obs[i]).squeeze(1); loss = ((w if H else 1) * td ** 2).mean(); opt.zero_grad(); loss.backward(); opt.step(); prio[i] = td.detach().abs() + 1e-3
    if step % 30 == 0: print(step, round(loss.item(), 4))
with torch.no_grad(): print("check: mean value above the true mean", (q(obs).squeeze(1).mean() - rew.mean()).item())
