"""clip_grad_norm_ with inf to measure the norm only, clamp with infinite bounds, bucketize with infinite edges.
Source: pytorch forum (clip_grad_norm_(params, float('inf'))), torchtitan's and timm's norm logging."""
import math, torch
from torch import nn
torch.set_num_threads(1)
torch.manual_seed(16)
INF = float("inf")
edges = torch.tensor([-INF, -1.0, 0.0, 1.0, INF])
model = nn.ModuleDict({"emb": nn.Embedding(6, 8), "net": nn.Sequential(nn.Linear(12, 32), nn.SiLU(), nn.Linear(32, 1))})
opt = torch.optim.SGD(model.parameters(), lr=0.05, momentum=0.9)
low, high = torch.tensor([-INF, -2.0, -INF, -1.0]), torch.tensor([INF, 2.0, 3.0, INF])
norms, losses = [], []
for step in range(40):
    x = torch.randn(32, 4)
    y = x.sum(1).sin()
    z = torch.clamp(x, low, high)
    code = model["emb"](torch.bucketize(x[:, 0], edges))
    loss = nn.functional.mse_loss(model["net"](torch.cat([z, code], 1)).squeeze(1), y)
    opt.zero_grad()
    loss.backward()
    norms.append(nn.utils.clip_grad_norm_(model.parameters(), INF).item())
    opt.step()
    losses.append(loss.item())
print(losses[0], losses[-1], "FINITE", all(map(math.isfinite, losses)) and all(bool(p.isfinite().all()) for p in model.parameters()))
