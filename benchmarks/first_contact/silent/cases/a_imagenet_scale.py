"""ImageNet's mean and std are applied to images in 0..255 that were never scaled to 0..1.

Source: https://github.com/j96w/DenseFusion/issues/39
Truth: the inputs' largest value is above 1000, 4.4 in the twin
Could a tool know: partly: inputs of a first layer that are hundreds of standard deviations wide
"""
import sys

import torch
import torch.nn.functional as F
from torch import nn

torch.set_num_threads(1)
torch.manual_seed(0)
HEALTHY = "--healthy" in sys.argv

MEAN, STD = torch.tensor([0.485, 0.456, 0.406])[:, None, None], torch.tensor([0.229, 0.224, 0.225])[:, None, None]
pattern = torch.rand(5, 3, 12, 12) * 255


def batch(n=32):
    y = torch.randint(0, 5, (n,))
    image = (0.4 * pattern[y] + 0.6 * 255 * torch.rand(n, 3, 12, 12)).clamp(0, 255)
    return ((image / 255 if HEALTHY else image) - MEAN) / STD, y


model = nn.Sequential(nn.Conv2d(3, 8, 3), nn.ReLU(), nn.MaxPool2d(2), nn.Flatten(), nn.Linear(200, 32), nn.ReLU(), nn.Linear(32, 5))
optimizer = torch.optim.Adam(model.parameters(), lr=1e-3)
for step in range(250):
    x, y = batch()
    loss = F.cross_entropy(model(x), y)
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()
    if step % 50 == 0:
        print(step, round(loss.item(), 4))
print("end: largest input", round(x.max().item(), 2), "loss", round(loss.item(), 4))
