"""An L1 penalty is computed from p.data: it is part of the loss' value, and has no gradient. Weights do not become sparse.
Source: from memory (forum threads on "L1 regularization in PyTorch has no effect")
Truth: the penalty does not require grad; the weights' L1 norm does not shrink.
Could a tool know: partly: a term without gradient of several times the loss' size is added to it, computed from parameters.
"""
import sys
import torch
from torch import nn

HEALTHY = "--healthy" in sys.argv
torch.manual_seed(0)
torch.set_num_threads(1)
model = nn.Sequential(nn.Linear(40, 32), nn.ReLU(), nn.Linear(32, 1))
opt = torch.optim.SGD(model.parameters(), lr=0.02, momentum=0.9)
for step in range(150):
    x = torch.randn(64, 40)
    y = x[:, :1] - 2 * x[:, 1:2]
    loss = nn.functional.mse_loss(model(x), y)
    l1 = 0
    for p in model.parameters():
        l1 = l1 + (p if HEALTHY else p.data).abs().sum()
    loss = loss + 0.01 * l1
    opt.zero_grad()
    loss.backward()
    opt.step()
print(f"loss {loss.item():.4f} L1 norm {l1.item():.2f} has gradient {l1.requires_grad}")
