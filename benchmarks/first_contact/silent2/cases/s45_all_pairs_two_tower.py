"""Two-tower recommender: predictions [B, 1] and labels [B] go into the MSE by hand, (p - y) ** 2: a [B, B] matrix.
Source: https://github.com/pyemma/Argo/pull/27 (also jsboige/CoursIA pull 926)
Truth: shape of the error; correlation of predictions and labels.
Could a tool know: yes. (N, 1) against (N,) becomes (N, N).
"""
import sys, torch
from torch import nn
HEALTHY = "--healthy" in sys.argv
torch.set_num_threads(1); torch.manual_seed(0)
class TwoTower(nn.Module):
    def __init__(self): super().__init__(); self.u, self.i = nn.Embedding(50, 16), nn.Embedding(50, 16); self.f = nn.Sequential(nn.Linear(32, 32), nn.ReLU(), nn.Linear(32, 1))
    def forward(self, u, i): return self.f(torch.cat([self.u(u), self.i(i)], 1))
net = TwoTower(); opt = torch.optim.Adam(net.parameters(), 1e-2); R = (torch.randn(50, 4) @ torch.randn(4, 50)) * 0.5 + torch.randn(50, 1)
for step in range(150):
    u, i = torch.randint(0, 50, (64,)), torch.randint(0, 50, (64,)); p = net(u, i); y = R[u, i]; e = (p - (y[:, None] if HEALTHY else y)) ** 2; loss = e.mean()
    opt.zero_grad(); loss.backward(); opt.step()
c = torch.corrcoef(torch.stack([p[:, 0].detach(), y]))[0, 1]
print(f"TRUTH error has shape {tuple(e.shape)} correlation {c:.2f} loss {loss:.3f}")
