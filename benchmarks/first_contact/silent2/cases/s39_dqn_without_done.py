"""DQN: the target lacks (1 - done), so values are bootstrapped beyond the episode's end.
Source: https://github.com/seungeunrho/minimalRL/issues/32 (also navneet-nmk/pytorch-rl issue 2)
Truth: Q at the last state before the goal (1 at most, as the reward is 1 and the episode ends).
Could a tool know: no. What a target should be is not known.
"""
import sys, copy, random, torch, torch.nn.functional as F
from torch import nn
HEALTHY = "--healthy" in sys.argv
torch.set_num_threads(1); torch.manual_seed(0); random.seed(0)
q = nn.Sequential(nn.Linear(10, 64), nn.ReLU(), nn.Linear(64, 2)); target = copy.deepcopy(q).requires_grad_(False); opt = torch.optim.Adam(q.parameters(), 2e-3); buf, s = [], 5
I = torch.eye(10)
for step in range(250):
    for _ in range(4):
        with torch.no_grad(): a = random.randrange(2) if random.random() < 0.4 else int(q(I[s]).argmax())
        n = max(0, s + (1 if a else -1)); done = n == 9; buf.append((s, a, float(done), n, float(done))); s = random.randrange(9) if done else n
    b = random.sample(buf, min(len(buf), 32)); S, A, R, N, Dn = map(torch.tensor, zip(*b))
    y = R + 0.95 * target(I[N]).amax(1) * ((1 - Dn) if HEALTHY else 1)
    loss = F.smooth_l1_loss(q(I[S]).gather(1, A[:, None])[:, 0], y); opt.zero_grad(); loss.backward(); opt.step()
    if step % 10 == 9: target.load_state_dict(q.state_dict())
print(f"TRUTH Q(8, right) {q(I[8])[1]:.2f} loss {loss:.4f}")
