"""REINFORCE: the policy ends in a softmax, and its probabilities are given to Categorical(logits=...): the policy can never be sharp.
Source: https://github.com/rlworkgroup/garage/pull/1357 (the reverse of it in cstorm125, ekapolc/RL_course_2019 pull 6)
Truth: largest probability of the distribution in use (3 actions: at most 0.58).
Could a tool know: yes. A softmax's output is normalized once more by log_softmax/logsumexp.
"""
import sys, torch
from torch import nn
from torch.distributions import Categorical
HEALTHY = "--healthy" in sys.argv
torch.set_num_threads(1); torch.manual_seed(0)
policy = nn.Sequential(nn.Linear(6, 32), nn.Tanh(), nn.Linear(32, 3), nn.Softmax(dim=-1)); opt = torch.optim.Adam(policy.parameters(), 1e-2)
W = torch.randn(6, 3); base = 0.0
for step in range(200):
    s = torch.randn(64, 6); probs = policy(s)
    dist = Categorical(probs=probs) if HEALTHY else Categorical(logits=probs)
    a = dist.sample(); r = (a == (s @ W).argmax(1)).float(); base = 0.9 * base + 0.1 * r.mean().item()
    loss = -(dist.log_prob(a) * (r - base)).mean(); opt.zero_grad(); loss.backward(); opt.step()
print(f"TRUTH largest probability {dist.probs.max():.2f} reward {r.mean():.2f}")
