"""Binary classification with one output and cross_entropy on float targets of shape (N, 1): log_softmax over one class is 0.
Source: from memory (asked again and again: "CrossEntropyLoss is always 0 with one output")
Truth: loss and gradients are 0 in all steps.
Could a tool know: yes: a log_softmax over a dimension of size 1; loss and all gradients are exactly 0.
"""
import sys
import torch
from torch import nn

HEALTHY = "--healthy" in sys.argv
torch.manual_seed(0)
torch.set_num_threads(1)
model = nn.Sequential(nn.Linear(10, 32), nn.ReLU(), nn.Dropout(0.1), nn.Linear(32, 1))
opt = torch.optim.AdamW(model.parameters(), lr=3e-3)
w = torch.randn(10, 1)
for step in range(100):
    x = torch.randn(64, 10)
    y = (x @ w > 0).float()
    out = model(x)
    loss = nn.functional.binary_cross_entropy_with_logits(out, y) if HEALTHY else nn.functional.cross_entropy(out, y)
    opt.zero_grad()
    loss.backward()
    opt.step()
print(f"loss {loss.item():.4f} gradient {model[0].weight.grad.abs().max():.2e}")
