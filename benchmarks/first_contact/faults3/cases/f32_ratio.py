"""Off-policy PPO updates with a Gaussian policy whose standard deviation shrinks: the probability ratio overflows.
Source: THUDM/slime#2198 (clamp log-ratios before exp), huggingface/trl#454."""
import sys, math
import torch
from torch import nn
from torch.distributions import Independent, Normal

torch.set_num_threads(1)
torch.manual_seed(32)
CURED = "--cured" in sys.argv


class Policy(nn.Module):
    def __init__(self, obs=6, act=8):
        super().__init__()
        self.mu = nn.Sequential(nn.Linear(obs, 64), nn.Tanh(), nn.Linear(64, act))
        self.log_std = nn.Parameter(torch.full((act,), -1.0))
        self.v = nn.Sequential(nn.Linear(obs, 64), nn.Tanh(), nn.Linear(64, 1))

    def dist(self, o):
        return Independent(Normal(self.mu(o), self.log_std.exp(), validate_args=False), 1, validate_args=False)


policy = Policy()
opt = torch.optim.Adam(policy.parameters(), lr=1e-2)
losses, step = [], 0
for it in range(3):
    obs = torch.randn(256, 6)
    with torch.no_grad():
        d = policy.dist(obs)
        act = d.sample()
        old = d.log_prob(act)
        reward = -((act - torch.tanh(obs).sum(1, keepdim=True)) ** 2).sum(1)
        adv = reward - policy.v(obs).squeeze(1)
        adv = (adv - adv.mean()) / (adv.std() + 1e-8)
        if it == 2:
            old[::37] -= 95.0  # transitions of an old behaviour policy, from the replay buffer
    for epoch in range(4):
        for mb in torch.randperm(256).split(64):
            new = policy.dist(obs[mb]).log_prob(act[mb])
            log_ratio = new - old[mb]
            if CURED:
                log_ratio = log_ratio.clamp(-20, 20)
            ratio = torch.exp(log_ratio)  # FAULT
            surr = torch.min(ratio * adv[mb], ratio.clamp(0.8, 1.2) * adv[mb]).mean()
            v_loss = ((policy.v(obs[mb]).squeeze(1) - reward[mb] / 10) ** 2).mean()
            loss = -surr + 0.5 * v_loss
            opt.zero_grad()
            loss.backward()
            nn.utils.clip_grad_norm_(policy.parameters(), 0.5)
            opt.step()
            losses.append(loss.item())
            step += 1
print(losses)
print("FINITE", all(map(math.isfinite, losses)) and all(bool(p.isfinite().all()) for p in policy.parameters()))
