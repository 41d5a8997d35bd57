import sys, math, copy
import torch, torch.nn as nn, torch.nn.functional as F
torch.set_num_threads(1)
torch.manual_seed(0)
HEALTHY = "--healthy" in sys.argv


def report(*modules):
    s = sum(p.detach().double().abs().sum().item() for m in modules for p in m.state_dict().values())
    print("weights", repr(s))


# the deadly triad: bootstrapped values, off-policy, no target network, gamma near 1
class V(nn.Module):
    def __init__(self):
        super().__init__()
        self.net = nn.Sequential(nn.Linear(6, 48), nn.ReLU(), nn.Linear(48, 48), nn.ReLU(), nn.Linear(48, 1))

    def forward(self, s):
        return self.net(s)


v = V()
target = copy.deepcopy(v)
opt = torch.optim.SGD(v.parameters(), lr=0.01)
for step in range(500):
    s = torch.rand(32, 6)
    s2 = s * 1.6 + 0.1 * torch.rand(32, 6)  # next states are larger
    r = 0.1 * s.sum(1, keepdim=True)
    with torch.no_grad():
        goal = r + (0.6 * target(s2.clamp(max=1)) if HEALTHY else 0.99 * v(s2))
    loss = F.mse_loss(v(s), goal)
    opt.zero_grad()
    loss.backward()
    opt.step()
    if step % 25 == 0:
        target.load_state_dict(v.state_dict())
    print(step, loss.item())
    if not math.isfinite(loss.item()) or abs(loss.item()) > 1e8:
        break
