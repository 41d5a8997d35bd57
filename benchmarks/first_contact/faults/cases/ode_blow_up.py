"""torchdiffeq with a fixed-step RK4 on dy/dt = k y^2, which reaches infinity in finite time.
Source: rtqichen/torchdiffeq#149, #58, patrick-kidger/NeuralCDE#2."""
import sys
import torch
from torch import nn
from torchdiffeq import odeint

CURED = "--cured" in sys.argv
torch.manual_seed(0)


class Field(nn.Module):
    def __init__(self):
        super().__init__()
        self.k = nn.Parameter(torch.tensor(0.5))
        self.net = nn.Sequential(nn.Linear(1, 8), nn.Tanh(), nn.Linear(8, 1))

    def forward(self, t, y):
        if CURED:
            y = y.clamp(-10, 10)
        growth = self.k * y * y  # FAULT
        return growth + 0.1 * self.net(torch.tanh(y))


field = Field()
opt = torch.optim.Adam(field.parameters(), lr=1e-2)
t = torch.linspace(0, 4, 20)
for step in range(4):
    y0 = torch.full((4, 1), 0.1)
    if step == 2:
        y0[3] = 5.0
    path = odeint(field, y0, t, method="rk4")
    loss = (path[-1] - 1).abs().mean()
    opt.zero_grad()
    loss.backward()
    opt.step()
    print(step, loss.item())
