import sys, math, copy
import torch, torch.nn as nn, torch.nn.functional as F
torch.set_num_threads(1)
torch.manual_seed(0)
HEALTHY = "--healthy" in sys.argv


def report(*modules):
    s = sum(p.detach().double().abs().sum().item() for m in modules for p in m.state_dict().values())
    print("weights", repr(s))


# navneet-nmk/pytorch-rl: the end of an episode is not used in the target
class Q(nn.Module):
    def __init__(self):
        super().__init__()
        self.net = nn.Sequential(nn.Linear(4, 32), nn.ReLU(), nn.Linear(32, 2))

    def forward(self, s):
        return self.net(s)


q = Q()
target = copy.deepcopy(q).requires_grad_(False)
opt = torch.optim.Adam(q.parameters(), lr=1e-3)
buf = []
s, t = torch.randn(4), 0
for step in range(300):
    eps = 0.2
    with torch.no_grad():
        a = int(torch.randint(2, ())) if torch.rand(()) < eps else int(q(s[None]).argmax())
    s2 = 0.9 * s + 0.3 * torch.randn(4) + (0.1 if a else -0.1)
    t += 1
    done = bool(s2.norm() > 2.5) or t >= 20
    buf.append((s, a, 1.0, s2, float(done)))
    s, t = (torch.randn(4), 0) if done else (s2, t)
    if len(buf) < 32:
        continue
    idx = torch.randint(len(buf), (32,)).tolist()
    S, A, R, S2, D = (torch.stack([buf[i][0] for i in idx]), torch.tensor([buf[i][1] for i in idx]),
                      torch.tensor([buf[i][2] for i in idx]), torch.stack([buf[i][3] for i in idx]),
                      torch.tensor([buf[i][4] for i in idx]))
    with torch.no_grad():
        nxt = target(S2).max(1).values
        goal = R + 0.99 * nxt * (1 - D) if HEALTHY else R + 0.99 * nxt
    loss = F.smooth_l1_loss(q(S).gather(1, A[:, None]).squeeze(1), goal)
    opt.zero_grad()
    loss.backward()
    opt.step()
    if step % 50 == 0:
        target.load_state_dict(q.state_dict())
        print(step, loss.item())
report(q)
