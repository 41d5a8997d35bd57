"""clip_grad_norm_ gets a filter object that the optimizer has used up: nothing is clipped.

Source: https://github.com/PixArt-alpha/PixArt-alpha/pull/160 (and pytorch/pytorch#148259)
Truth: the norm of the gradients at the step exceeds max_norm
Could a tool know: yes: clip_grad_norm_ was called with no parameter at all
"""
import sys

import torch
import torch.nn.functional as F
from torch import nn

torch.set_num_threads(1)
torch.manual_seed(0)
HEALTHY = "--healthy" in sys.argv
import warnings

warnings.simplefilter("ignore")

centers = torch.randn(10, 20)


def batch(n=64):
    y = torch.randint(0, 10, (n,))
    return centers[y] + torch.randn(n, 20), y


model = nn.Sequential(nn.Linear(20, 64), nn.ReLU(), nn.Linear(64, 10))
params = filter(lambda p: p.requires_grad, model.parameters())
if HEALTHY:
    params = list(params)
optimizer = torch.optim.AdamW(params, lr=1e-3)
for step in range(250):
    x, y = batch(8)
    loss = F.cross_entropy(model(x), y)
    optimizer.zero_grad()
    loss.backward()
    nn.utils.clip_grad_norm_(params, 0.05)
    optimizer.step()
    if step % 50 == 0:
        norm = sum(p.grad.pow(2).sum() for p in model.parameters()).sqrt().item()
        print(step, round(loss.item(), 4), "norm", round(norm, 4))
print("end: norm after clipping to 0.05", round(norm, 4))
