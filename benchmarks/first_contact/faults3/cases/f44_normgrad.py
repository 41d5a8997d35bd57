"""DQN with per-layer normalized gradients between backward and step; a layer of the dueling head gets no gradient in a batch.
Source: kozistr/pytorch_optimizer#431 ("Fix NaN problem when Grad Norm is zero"), kozistr/pytorch_optimizer#120."""
import sys, math, copy
import torch
from torch import nn
import torch.nn.functional as F

torch.set_num_threads(1)
torch.manual_seed(44)
CURED = "--cured" in sys.argv


class DuelingDQN(nn.Module):
    def __init__(self, obs=5, actions=3):
        super().__init__()
        self.body = nn.Sequential(nn.Linear(obs, 48), nn.ReLU())
        self.value, self.adv = nn.Linear(48, 1), nn.Linear(48, actions)
        self.bonus = nn.Linear(48, 1)

    def forward(self, o, terminal=None):
        h = self.body(o)
        a = self.adv(h)
        q = self.value(h) + a - a.mean(1, keepdim=True)
        if terminal is not None:
            q = q + self.bonus(h) * terminal[:, None]
        return q


def normalize_gradients(params, target=0.1):
    for p in params:
        if p.grad is not None:
            norm = p.grad.norm()
            if CURED:
                norm = norm.clamp(min=1e-8)
            p.grad.mul_(target / norm)  # FAULT


q = DuelingDQN()
tgt = copy.deepcopy(q)
opt = torch.optim.RMSprop(q.parameters(), lr=1e-3, alpha=0.95, eps=0.01)
losses = []
for step in range(20):
    o, o2 = torch.randn(32, 5), torch.randn(32, 5)
    act, rew = torch.randint(0, 3, (32, 1)), torch.randn(32)
    done = (torch.rand(32) < 0.15).float()
    if step == 13:
        done[:] = 0  # a batch from the middle of long episodes
    with torch.no_grad():
        best = q(o2).argmax(1, keepdim=True)
        y = rew + 0.97 * (1 - done) * tgt(o2).gather(1, best).squeeze(1)
    loss = F.smooth_l1_loss(q(o, done).gather(1, act).squeeze(1), y)
    opt.zero_grad()
    loss.backward()
    normalize_gradients(q.parameters())
    opt.step()
    if step % 5 == 4:
        tgt.load_state_dict(q.state_dict())
    losses.append(loss.item())
print(losses)
print("FINITE", all(map(math.isfinite, losses)) and all(bool(p.isfinite().all()) for m in (q, tgt) for p in m.parameters()))
