"""Gradients are clipped after each micro-batch's backward, so what has accumulated is clipped again and again, and early micro-batches
count less.
Source: https://github.com/huggingface/transformers/issues/1563
Truth: clip_grad_norm_ is called 4 times a step.
Could a tool know: partly: gradients are clipped several times before one step, with backwards between.
"""
import sys
import torch
from torch import nn

HEALTHY = "--healthy" in sys.argv
torch.manual_seed(0)
torch.set_num_threads(1)
model = nn.Sequential(nn.Embedding(60, 32), nn.Flatten(), nn.Linear(32 * 6, 64), nn.ReLU(), nn.Linear(64, 3))
opt = torch.optim.SGD(model.parameters(), lr=0.1)
calls = 0
for step in range(100):
    opt.zero_grad()
    for micro in range(4):
        ids = torch.randint(0, 60, (16, 6))
        loss = nn.functional.cross_entropy(model(ids), ids[:, 0] % 3) / 4
        loss.backward()
        if not HEALTHY or micro == 3:
            torch.nn.utils.clip_grad_norm_(model.parameters(), 0.05)
            calls += 1
    opt.step()
print(f"loss {loss.item() * 4:.4f} clippings per step {calls / 100}")
