"""MAML whose inner loss standardises by the support set's std: one shot makes it nan.
Source: Own: one sample's std in the inner loop of higher."""
import sys
import higher
import torch
from torch import nn

CURED = "--cured" in sys.argv
torch.manual_seed(0)
net = nn.Sequential(nn.Linear(1, 16), nn.ReLU(), nn.Linear(16, 1))
meta = torch.optim.Adam(net.parameters(), lr=1e-3)


def task_loss(pred, y):
    scale = y.std(dim=0, unbiased=not CURED)  # FAULT
    return ((pred - y) / (scale + 1e-3)).pow(2).mean()


for it, shots in enumerate([5, 3, 1, 5]):
    inner = torch.optim.SGD(net.parameters(), lr=0.01)
    x = torch.rand(shots + 8, 1)
    y = torch.sin(6 * x)
    meta.zero_grad()
    with higher.innerloop_ctx(net, inner, copy_initial_weights=False) as (fast, diff):
        diff.step(task_loss(fast(x[:shots]), y[:shots]))
        loss = (fast(x[shots:]) - y[shots:]).pow(2).mean()
        loss.backward()
    meta.step()
    print(it, loss.item())
