import sys, math, copy
import torch, torch.nn as nn, torch.nn.functional as F
torch.set_num_threads(1)
torch.manual_seed(0)
HEALTHY = "--healthy" in sys.argv


def report(*modules):
    s = sum(p.detach().double().abs().sum().item() for m in modules for p in m.state_dict().values())
    print("weights", repr(s))


# DQN on a small chain with a target network that is loaded every 40 steps, rewards that become frequent
class Q(nn.Module):
    def __init__(self):
        super().__init__()
        self.net = nn.Sequential(nn.Linear(9, 48), nn.ReLU(), nn.Linear(48, 48), nn.ReLU(), nn.Linear(48, 2))

    def forward(self, s):
        return self.net(s)


q, target = Q(), Q()
target.load_state_dict(q.state_dict())
opt = torch.optim.Adam(q.parameters(), lr=1e-3)
buf, s, eye = [], 0, torch.eye(9)
for step in range(700):
    eps = max(0.1, 1 - step / 300)
    with torch.no_grad():
        a = int(torch.randint(2, ())) if torch.rand(()) < eps else int(q(eye[s][None]).argmax())
    s2 = max(0, min(8, s + (1 if a else -1)))
    r, done = (1.0, 1.0) if s2 == 8 else (0.0, 0.0)
    buf.append((s, a, r, s2, done))
    s = 0 if done or torch.rand(()) < 0.02 else s2
    if len(buf) < 50:
        continue
    b = [buf[i] for i in torch.randint(len(buf), (32,)).tolist()]
    S, A, R, S2, D = (torch.tensor([e[i] for e in b]) for i in range(5))
    with torch.no_grad():
        y = R + 0.97 * (1 - D) * target(eye[S2]).max(1).values
    loss = F.smooth_l1_loss(q(eye[S]).gather(1, A[:, None]).squeeze(1), y)
    opt.zero_grad(); loss.backward(); opt.step()
    if step % 40 == 0:
        target.load_state_dict(q.state_dict())
print("steps", 651)
report(q)
