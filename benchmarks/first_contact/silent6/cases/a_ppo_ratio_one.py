"""From tensorforce/tensorforce issue 312 (also higgsfield-ai/higgsfield issue 20).
Wrong: the old log-probs are computed again with the present policy in each minibatch, so the ratio is 1 and nothing is ever clipped.
Could know: partly (a ratio that is exactly 1 for every sample at every step).
"""
import sys, torch, torch.nn as nn, torch.nn.functional as F
from torch.distributions import Categorical
H = "--healthy" in sys.argv
torch.manual_seed(0); torch.set_num_threads(1)
pi = nn.Sequential(nn.Linear(4, 64), nn.Tanh(), nn.Linear(64, 3)); v = nn.Sequential(nn.Linear(4, 64), nn.Tanh(), nn.Linear(64, 1)); opt = torch.optim.Adam([*pi.parameters(), *v.parameters()], 5e-3); W = torch.randn(4, 3); spread = clipped = 0.
for it in range(12):
    with torch.no_grad(): S = torch.randn(256, 4); d = Categorical(logits=pi(S)); A = d.sample(); L0 = d.log_prob(A); R = (S @ W).gather(1, A[:, None]).squeeze(1) + .1 * torch.randn(256); adv = R - v(S).squeeze(1); adv = (adv - adv.mean()) / (adv.std() + 1e-8)
    for ep in range(3):
        for i in range(0, 256, 64):
            s, a = S[i:i + 64], A[i:i + 64]; lp = Categorical(logits=pi(s)).log_prob(a)
            with torch.no_grad(): old = L0[i:i + 64] if H else Categorical(logits=pi(s)).log_prob(a)
            ratio = (lp - old).exp(); ad = adv[i:i + 64]
            loss = -torch.min(ratio * ad, ratio.clamp(.8, 1.2) * ad).mean() + .5 * F.mse_loss(v(s).squeeze(1), R[i:i + 64]); opt.zero_grad(); loss.backward(); opt.step()
            spread = max(spread, (ratio - 1).abs().max().item()); clipped += ((ratio - 1).abs() > .2).float().mean().item() / 144
    print(it, round(R.mean().item(), 3), round(loss.item(), 4))
print("check: largest |ratio - 1|", spread, "share outside the clip range", clipped)
