"""Healthy: top-1 switch experts with capacity and an aux loss: some experts get no token in some steps.  500 steps."""
import sys, math, copy, random, torch, torch.nn as nn, torch.nn.functional as F
torch.manual_seed(0); random.seed(0); torch.set_num_threads(1)
class Switch(nn.Module):
    def __init__(self, d=24, e=8): super().__init__(); self.g = nn.Linear(d, e); self.x = nn.ModuleList(nn.Sequential(nn.Linear(d, 32), nn.ReLU(), nn.Linear(32, d)) for _ in range(e)); self.e = e
    def forward(self, h):
        p = self.g(h).softmax(-1); v, i = p.max(-1); out = torch.zeros_like(h)
        for k, f in enumerate(self.x):
            t = (i == k).nonzero().squeeze(1)[:24]
            if len(t): out = out.index_add(0, t, f(h[t]) * v[t, None])
        self.aux = self.e * (F.one_hot(i, self.e).float().mean(0) * p.mean(0)).sum(); return h + out
n = nn.Sequential(nn.Linear(8, 24), Switch(), nn.LayerNorm(24), Switch(), nn.Linear(24, 6)); opt = torch.optim.AdamW(n.parameters(), 2e-3); w = torch.randn(8, 6)
for step in range(500):
    x = torch.randn(96, 8); loss = F.cross_entropy(n(x), (x @ w).argmax(1)) + .02 * (n[1].aux + n[3].aux); opt.zero_grad(); loss.backward(); opt.step()
    if step % 50 == 0: print(step, loss.item())
