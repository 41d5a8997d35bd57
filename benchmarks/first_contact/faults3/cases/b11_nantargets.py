"""Multi-task regression with nan for missing targets: the loss takes the known ones by indexing.
Source: pytorch/pytorch#89543 (nan-ignoring MSE), MoleculeNet's missing labels in DeepChem / chemprop (mask of nan targets)."""
import math, torch
from torch import nn
torch.set_num_threads(1)
torch.manual_seed(11)
model = nn.Sequential(nn.Linear(12, 48), nn.ReLU(), nn.Linear(48, 5))
opt = torch.optim.Adam(model.parameters(), lr=5e-3)
w = torch.randn(12, 5)
losses = []
for step in range(50):
    x = torch.randn(32, 12)
    y = (x @ w * 0.3).masked_fill(torch.rand(32, 5) < 0.6, float("nan"))
    if step % 7 == 0:
        y[:, 3] = float("nan")
    pred = model(x)
    known = ~y.isnan()
    loss = ((pred[known] - y[known]) ** 2).mean()
    opt.zero_grad()
    loss.backward()
    opt.step()
    per_task = torch.nanmean((pred.detach() - y) ** 2, 0)
    losses.append(loss.item())
print(per_task, losses[0], losses[-1], "FINITE", all(map(math.isfinite, losses)) and all(bool(p.isfinite().all()) for p in model.parameters()))
