"""WGAN-GP: autograd.grad for the penalty without create_graph=True: its value is added to the loss, its gradient is not there.
Source: https://github.com/ooples/AiDotNet/issues/1844 (the same in igul222/improved_wgan_training issue 18)
Truth: penalty term has no grad_fn; the critic's gradient norm at the interpolates (1 expected).
Could a tool know: yes. A term that is added to the loss (times lambda) was computed from parameters and has no graph.
"""
import sys, torch
from torch import nn
HEALTHY = "--healthy" in sys.argv
torch.set_num_threads(1); torch.manual_seed(0)
G = nn.Sequential(nn.Linear(8, 48), nn.ReLU(), nn.Linear(48, 48), nn.ReLU(), nn.Linear(48, 2))
D = nn.Sequential(nn.Linear(2, 48), nn.LeakyReLU(0.2), nn.Linear(48, 48), nn.LeakyReLU(0.2), nn.Linear(48, 1))
og, od = torch.optim.Adam(G.parameters(), 1e-3, (0.5, 0.9)), torch.optim.Adam(D.parameters(), 1e-3, (0.5, 0.9))
def real():
    a = torch.randint(0, 8, (64,)) * 0.785; return torch.stack([a.cos(), a.sin()], 1) + 0.03 * torch.randn(64, 2)
for step in range(80):
    for _ in range(3):
        r, f = real(), G(torch.randn(64, 8)).detach(); e = torch.rand(64, 1)
        x = (e * r + (1 - e) * f).requires_grad_()
        g = torch.autograd.grad(D(x).sum(), x, create_graph=HEALTHY)[0]
        gp = ((g.norm(2, 1) - 1) ** 2).mean()
        loss = D(f).mean() - D(r).mean() + 10 * gp
        od.zero_grad(); loss.backward(); od.step()
    og.zero_grad(); gl = -D(G(torch.randn(64, 8))).mean(); gl.backward(); og.step()
print(f"TRUTH penalty has a graph: {gp.requires_grad}; gradient norm {g.norm(2, 1).mean():.2f}")
