"""Neural ODE (torchdiffeq, fixed steps) with a quadratic interaction term; a far initial value escapes in finite time.
Source: rtqichen/torchdiffeq issues on "underflow in dt" / diverging dynamics; R. Chen et al., arXiv 1806.07366."""
import sys, math
import torch
from torch import nn
from torchdiffeq import odeint

torch.set_num_threads(1)
torch.manual_seed(48)
CURED = "--cured" in sys.argv


class LotkaNet(nn.Module):
    def __init__(self, dim=2):
        super().__init__()
        self.lin = nn.Linear(dim, dim)
        self.quad = nn.Bilinear(dim, dim, dim, bias=False)
        self.net = nn.Sequential(nn.Linear(dim, 32), nn.Tanh(), nn.Linear(32, dim))

    def forward(self, t, y):
        if CURED:
            y = 5 * torch.tanh(y / 5)
        return self.lin(y) + self.quad(y, y) + self.net(y)  # FAULT


func = LotkaNet()
opt = torch.optim.RMSprop(func.parameters(), lr=1e-3)
t = torch.linspace(0, 2, 12)
losses = []
for step in range(12):
    y0 = torch.randn(16, 2) * 0.4
    if step == 8:
        y0[6] = torch.tensor([60.0, -80.0])
    with torch.no_grad():
        target = torch.stack([y0 * torch.exp(-0.5 * s) for s in t])
    pred = odeint(func, y0, t, method="rk4")
    loss = (pred - target).abs().mean()
    opt.zero_grad()
    loss.backward()
    nn.utils.clip_grad_norm_(func.parameters(), 1.0)
    opt.step()
    losses.append(loss.item())
print(losses)
print("FINITE", all(map(math.isfinite, losses)) and all(bool(p.isfinite().all()) for p in func.parameters()))
