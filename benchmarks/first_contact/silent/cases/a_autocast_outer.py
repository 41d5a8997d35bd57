"""One autocast around the whole loop: its cache serves the first step's bfloat16 weights for ever.

Source: https://github.com/X-GenGroup/Flow-Factory/pull/186
Truth: the loss is flat, the twin's falls; weights move though
Could a tool know: yes: weights change, outputs for the same input do not; autocast is never left
"""
import sys

import torch
import torch.nn.functional as F
from torch import nn

torch.set_num_threads(1)
torch.manual_seed(0)
HEALTHY = "--healthy" in sys.argv
import contextlib

centers = torch.randn(10, 20)
model = nn.Sequential(nn.Linear(20, 64), nn.ReLU(), nn.Linear(64, 10))
optimizer = torch.optim.AdamW(model.parameters(), lr=1e-3)
outer = contextlib.nullcontext() if HEALTHY else torch.autocast("cpu", torch.bfloat16)
inner = (lambda: torch.autocast("cpu", torch.bfloat16)) if HEALTHY else contextlib.nullcontext
with outer:
    for step in range(250):
        y = torch.randint(0, 10, (64,))
        x = centers[y] + 0.5 * torch.randn(64, 20)
        with inner():
            loss = F.cross_entropy(model(x), y)
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        if step % 50 == 0:
            print(step, round(loss.item(), 4))
print("end: loss", round(loss.item(), 4))
