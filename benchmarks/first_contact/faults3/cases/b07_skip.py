"""A corrupt sample makes the loss nan now and then; the script skips the batch, as many do.
Source: karpathy/nanoGPT#227 ("Skip step if loss is nan"), detectron2 and fairseq loops."""
import math, torch
from torch import nn
torch.set_num_threads(1)
torch.manual_seed(7)
model = nn.Sequential(nn.Conv1d(2, 16, 5), nn.ReLU(), nn.AdaptiveAvgPool1d(1), nn.Flatten(), nn.Linear(16, 3))
opt = torch.optim.AdamW(model.parameters(), lr=3e-3)
losses, skipped = [], 0
for step in range(50):
    y = torch.randint(0, 3, (16,))
    x = torch.randn(16, 2, 40) + y[:, None, None]
    if step in (13, 31):
        x[4, 0, 7] = float("nan")  # a broken file
    if not torch.isfinite(x).all():
        skipped += 1
        continue
    loss = nn.functional.cross_entropy(model(x), y)
    if not torch.isfinite(loss):
        skipped += 1
        continue
    opt.zero_grad()
    loss.backward()
    opt.step()
    losses.append(loss.item())
print(skipped, losses[0], losses[-1], "FINITE", all(map(math.isfinite, losses)) and all(bool(p.isfinite().all()) for p in model.parameters()))
