"""A Softmax layer at the model's end, then CrossEntropyLoss.

Source: https://discuss.pytorch.org/t/cross-entropy-loss-is-not-decreasing/43814/16
Truth: the twin reaches a loss near 0; with softmax twice it cannot fall below 1.46 for ten classes
Could a tool know: yes: what cross_entropy gets as logits is the output of a Softmax, rows sum to 1
"""
import sys

import torch
import torch.nn.functional as F
from torch import nn

torch.set_num_threads(1)
torch.manual_seed(0)
HEALTHY = "--healthy" in sys.argv

centers = torch.randn(10, 20) * 2


def batch(n=64):
    y = torch.randint(0, 10, (n,))
    return centers[y] + torch.randn(n, 20), y


layers = [nn.Linear(20, 64), nn.ReLU(), nn.Linear(64, 10)]
if not HEALTHY:
    layers.append(nn.Softmax(dim=1))
model = nn.Sequential(*layers)
criterion = nn.CrossEntropyLoss()
optimizer = torch.optim.SGD(model.parameters(), lr=0.05, momentum=0.9)
for step in range(400):
    x, y = batch()
    loss = criterion(model(x), y)
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()
    if step % 50 == 0:
        print(step, round(loss.item(), 4))
print("end: loss", round(loss.item(), 4))
