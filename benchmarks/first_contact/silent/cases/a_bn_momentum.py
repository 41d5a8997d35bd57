"""BatchNorm's momentum is TensorFlow's 0.99: running statistics are those of the last batch.

Source: https://github.com/pytorch/vision/issues/8250
Truth: the running mean jumps with each batch: its standard deviation over steps is 10 times the twin's
Could a tool know: yes: BatchNorm's momentum is above 0.9
"""
import sys

import torch
import torch.nn.functional as F
from torch import nn

torch.set_num_threads(1)
torch.manual_seed(0)
HEALTHY = "--healthy" in sys.argv

model = nn.Sequential(nn.Conv2d(3, 16, 3, padding=1), nn.BatchNorm2d(16, momentum=0.01 if HEALTHY else 0.99), nn.ReLU(), nn.Conv2d(16, 16, 3, stride=2), nn.BatchNorm2d(16, momentum=0.01 if HEALTHY else 0.99), nn.ReLU(), nn.AdaptiveAvgPool2d(1), nn.Flatten(), nn.Linear(16, 4))
optimizer = torch.optim.AdamW(model.parameters(), lr=3e-3)
means = []


def batch(n=8):
    y = torch.randint(0, 4, (n,))
    return torch.randn(n, 3, 10, 10) * (0.5 + y[:, None, None, None]) + torch.randn(n, 3, 1, 1), y


for step in range(250):
    model.train()
    x, y = batch()
    loss = F.cross_entropy(model(x), y)
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()
    means.append(model[1].running_mean.clone())
    if step % 50 == 49:
        model.eval()
        with torch.no_grad():
            x, y = batch(256)
            print(step, round(loss.item(), 4), "val", round(F.cross_entropy(model(x), y).item(), 4))
print("end: the running mean's deviation over 50 steps", round(torch.stack(means[-50:]).std(0).mean().item(), 4))
