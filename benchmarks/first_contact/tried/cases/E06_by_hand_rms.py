# source: tutorials with updates by hand: g / v.sqrt() without eps
import torch, torch.nn as nn, torch.nn.functional as F
torch.manual_seed(0)
model = nn.Sequential(nn.Linear(6, 8), nn.ReLU(), nn.Linear(8, 2))
with torch.no_grad():
    model[0].bias[3] = -50.0
model = model  # MODEL
state = [torch.zeros_like(p) for p in model.parameters()]
for step in range(9):
    x, y = torch.randn(8, 6), torch.randint(0, 2, (8,))
    loss = F.cross_entropy(model(x), y)
    model.zero_grad(); loss.backward()
    with torch.no_grad():
        for p, v in zip(model.parameters(), state):
            v.mul_(0.9).add_(0.1 * p.grad ** 2)
            p.sub_(1e-3 * p.grad / v.sqrt())
