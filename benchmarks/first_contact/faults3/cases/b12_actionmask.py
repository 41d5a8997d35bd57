"""PPO-like policy with invalid actions masked by -inf logits; log-probabilities of valid actions and a masked entropy.
Source: S. Huang and S. Ontanon, arXiv 2006.14171; Stable-Baselines3-contrib MaskablePPO."""
import math, torch
from torch import nn
torch.set_num_threads(1)
torch.manual_seed(12)
policy = nn.Sequential(nn.Linear(8, 32), nn.Tanh(), nn.Linear(32, 6))
opt = torch.optim.Adam(policy.parameters(), lr=1e-2)
losses = []
for step in range(40):
    obs = torch.randn(64, 8)
    valid = torch.rand(64, 6) < 0.6
    valid[torch.arange(64), torch.randint(0, 6, (64,))] = True
    logits = policy(obs).masked_fill(~valid, float("-inf"))
    logp = logits.log_softmax(-1)
    with torch.no_grad():
        act = torch.multinomial(logp.exp(), 1)
        reward = obs[:, :6].gather(1, act).squeeze(1)
        adv = reward - reward.mean()
    safe = logp.masked_fill(~valid, 0.0)
    entropy = -(safe.exp() * safe * valid).sum(-1)
    loss = -(logp.gather(1, act).squeeze(1) * adv).mean() - 0.01 * entropy.mean()
    opt.zero_grad()
    loss.backward()
    opt.step()
    losses.append(loss.item())
    if step % 13 == 0:
        print(step, reward.mean().item())
print(reward.mean().item(), "FINITE", all(map(math.isfinite, losses)) and all(bool(p.isfinite().all()) for p in policy.parameters()))
