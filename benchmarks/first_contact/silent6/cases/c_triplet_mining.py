"""Healthy: metric learning with batch-hard triplets and a margin: the loss is exactly 0 or the margin now and then, and stays near the margin
at first.  500 steps."""
import sys, math, copy, random, torch, torch.nn as nn, torch.nn.functional as F
torch.manual_seed(0); random.seed(0); torch.set_num_threads(1)
n = nn.Sequential(nn.Linear(16, 64), nn.BatchNorm1d(64), nn.ReLU(), nn.Linear(64, 16)); opt = torch.optim.Adam(n.parameters(), 1e-3); c = torch.randn(20, 16)
for step in range(500):
    k = torch.randperm(20)[:8].repeat_interleave(4); x = c[k] + .8 * torch.randn(32, 16); z = F.normalize(n(x), dim=1); d = torch.cdist(z, z); same = k[:, None] == k[None]
    hp = (d * same).max(1).values; hn = d.masked_fill(same, 9).min(1).values; loss = F.relu(hp - hn + .2).mean(); opt.zero_grad(); loss.backward(); opt.step()
    if step % 50 == 0: print(step, loss.item())
