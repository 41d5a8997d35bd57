"""A2C under torch.compile with an entropy bonus of p * log(p); the policy becomes deterministic.
Source: google-deepmind/optax#1786 and MakazhanAlpamys/Soup#719 (0 * log 0); openai/baselines (entropy from logits)."""
import sys, math
import torch
from torch import nn
import torch.nn.functional as F

torch.set_num_threads(1)
torch.manual_seed(55)
CURED = "--cured" in sys.argv


class ActorCritic(nn.Module):
    def __init__(self, obs=4, actions=5):
        super().__init__()
        self.body = nn.Sequential(nn.Linear(obs, 32), nn.ReLU())
        self.pi, self.v = nn.Linear(32, actions), nn.Linear(32, 1)

    def forward(self, o):
        h = self.body(o)
        logits = self.pi(h) * 8
        if CURED:
            logp = F.log_softmax(logits, -1)
            entropy = -(logp.exp() * logp).sum(-1)
        else:
            p = logits.softmax(-1)
            entropy = -(p * p.log()).sum(-1)  # FAULT
            logp = (p + 1e-8).log()
        return logp, entropy, self.v(h).squeeze(-1)


net = ActorCritic()
compiled = torch.compile(net, backend="aot_eager")
opt = torch.optim.RMSprop(net.parameters(), lr=7e-3, eps=1e-5)
losses = []
for step in range(40):
    o = torch.randn(40, 4) * (1 + 0.3 * step)
    logp, entropy, v = compiled(o)
    a = torch.multinomial(logp.detach().exp(), 1)
    r = (a.squeeze(1) == (o[:, 0] > 0).long()).float() * 2 - 0.5
    adv = r - v
    loss = -(logp.gather(1, a).squeeze(1) * adv.detach()).mean() + 0.5 * adv.pow(2).mean() - 0.01 * entropy.mean()
    opt.zero_grad()
    loss.backward()
    nn.utils.clip_grad_norm_(net.parameters(), 0.5)
    losses.append(loss.item())
    if not math.isfinite(losses[-1]):
        opt.step()
        break
    opt.step()
print(losses)
print("FINITE", all(map(math.isfinite, losses)) and all(bool(p.isfinite().all()) for p in net.parameters()))
