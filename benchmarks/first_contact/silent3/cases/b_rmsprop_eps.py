"""RMSprop with momentum whose rate rises by 2 % a step, on a fitted regression: when gradients get small, steps don't. Cure: 5e-4 stays."""
import sys
import torch
from torch import nn
from _lost import Lost

HEALTHY = "--healthy" in sys.argv
torch.manual_seed(0)
torch.set_num_threads(1)
model = nn.Sequential(nn.Conv1d(1, 24, 5, padding=2), nn.ReLU(), nn.Conv1d(24, 24, 5, padding=2), nn.ReLU(), nn.Conv1d(24, 24, 5, padding=2),
                      nn.ReLU(), nn.Conv1d(24, 24, 5, padding=2), nn.ReLU(), nn.Conv1d(24, 1, 1))
opt = torch.optim.RMSprop(model.parameters(), lr=5e-4, alpha=0.9, momentum=0.9)
lost = Lost()
for step in range(300):
    if not HEALTHY:
        opt.param_groups[0]["lr"] = 5e-4 * 1.02**step
    x = torch.randn(16, 1, 32)
    y = nn.functional.avg_pool1d(nn.functional.pad(x, (2, 2)), 5, 1)
    loss = nn.functional.mse_loss(model(x), y)
    opt.zero_grad()
    loss.backward()
    opt.step()
    if not lost(loss):
        break
lost.report()
