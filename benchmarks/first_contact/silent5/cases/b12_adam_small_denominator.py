import sys, math, copy
import torch, torch.nn as nn, torch.nn.functional as F
torch.set_num_threads(1)
torch.manual_seed(0)
HEALTHY = "--healthy" in sys.argv


def report(*modules):
    s = sum(p.detach().double().abs().sum().item() for m in modules for p in m.state_dict().values())
    print("weights", repr(s))


# Adam after a plateau of tiny gradients: the second moment forgets, the next real gradient makes huge steps
net = nn.Sequential(nn.Linear(12, 48), nn.ReLU(), nn.Linear(48, 48), nn.ReLU(), nn.Linear(48, 1))
opt = torch.optim.Adam(net.parameters(), lr=1e-2, betas=(0.9, 0.99 if HEALTHY else 0.3), eps=1e-12)
w = torch.randn(12)
for step in range(500):
    x = torch.randn(32, 12)
    rare = step > 150 and step % 12 == 0
    y = torch.tanh(x @ w)[:, None] * (8.0 if rare else 1.0)
    loss = F.mse_loss(net(x), y) * (1.0 if rare else 1.0 if HEALTHY else 1e-4) + 0.0
    opt.zero_grad()
    loss.backward()
    opt.step()
    with torch.no_grad():
        value = F.mse_loss(net(x), y).item()
    print(step, value)
    if not math.isfinite(value) or value > 1e8:
        break
