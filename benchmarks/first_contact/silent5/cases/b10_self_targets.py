import sys, math, copy
import torch, torch.nn as nn, torch.nn.functional as F
torch.set_num_threads(1)
torch.manual_seed(0)
HEALTHY = "--healthy" in sys.argv


def report(*modules):
    s = sum(p.detach().double().abs().sum().item() for m in modules for p in m.state_dict().values())
    print("weights", repr(s))


# a student learns from its own averaged teacher, whose targets are sharpened by a factor above one: a loop that amplifies
net = nn.Sequential(nn.Linear(8, 48), nn.ReLU(), nn.Linear(48, 48), nn.ReLU(), nn.Linear(48, 4))
ema = copy.deepcopy(net).requires_grad_(False)
opt = torch.optim.Adam(net.parameters(), lr=2e-3)
for step in range(500):
    x = torch.randn(64, 8)
    t = ema(x) * (1.0 if HEALTHY else 1.5)
    loss = F.mse_loss(net(x + 0.1 * torch.randn_like(x)), t)
    opt.zero_grad()
    loss.backward()
    opt.step()
    with torch.no_grad():
        for a, b in zip(ema.parameters(), net.parameters()):
            a.lerp_(b, 0.1)
    print(step, loss.item())
    if not math.isfinite(loss.item()) or loss.item() > 1e8:
        break
