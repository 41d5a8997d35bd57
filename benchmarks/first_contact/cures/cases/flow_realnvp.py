import math
import torch
import torch.nn.functional as F
from torch import nn

torch.set_num_threads(1)
torch.manual_seed(0)

# src: https://github.com/VincentStimper/normalizing-flows/issues/73
class Coupling(nn.Module):
    def __init__(self, flip):
        super().__init__(); self.flip = flip; self.net = nn.Sequential(nn.Linear(3, 32), nn.ReLU(), nn.Linear(32, 6))
    def forward(self, x):
        a, b = x.chunk(2, 1)
        if self.flip: a, b = b, a
        s, t = self.net(a).chunk(2, 1)
        b = (b - t) * torch.exp(-s)
        return torch.cat([a, b] if not self.flip else [b, a], 1), -s.sum(1)
class Flow(nn.Module):
    def __init__(self):
        super().__init__(); self.layers = nn.ModuleList(Coupling(i % 2) for i in range(4))
    def forward(self, x):
        ld = 0
        for l in self.layers:
            x, d = l(x); ld = ld + d
        return x, ld
model = Flow(); opt = torch.optim.Adam(model.parameters(), lr=1e-3)
for step in range(12):
    x = torch.randn(16, 6)
    if step == 7: x[0] *= 100
    z, ld = model(x)
    loss = (0.5 * (z ** 2).sum(1) - ld).mean()
    opt.zero_grad(); loss.backward(); opt.step()
    print(step, repr(loss.item()))
