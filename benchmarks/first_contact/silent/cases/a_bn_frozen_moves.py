"""A frozen backbone (requires_grad=False) stays in train mode: its BatchNorm statistics go on changing.

Source: https://github.com/lightly-ai/lightly/issues/1438
Truth: running_mean of the frozen backbone changed
Could a tool know: yes: buffers of a module move all of whose parameters are frozen
"""
import sys

import torch
import torch.nn.functional as F
from torch import nn

torch.set_num_threads(1)
torch.manual_seed(0)
HEALTHY = "--healthy" in sys.argv

backbone = nn.Sequential(nn.Conv2d(3, 16, 3, padding=1), nn.BatchNorm2d(16), nn.ReLU(), nn.Conv2d(16, 16, 3, padding=1, stride=2), nn.BatchNorm2d(16), nn.ReLU(), nn.AdaptiveAvgPool2d(1), nn.Flatten())
with torch.no_grad():
    for _ in range(20):
        backbone(torch.randn(16, 3, 12, 12))  # the pretraining's statistics
head = nn.Linear(16, 4)
model = nn.Sequential(backbone, head)
for p in backbone.parameters():
    p.requires_grad_(False)
model.train()
if HEALTHY:
    backbone.eval()
before = backbone[1].running_mean.clone()
optimizer = torch.optim.AdamW(head.parameters(), lr=5e-3)
for step in range(150):
    y = torch.randint(0, 4, (16,))
    x = 1.5 + torch.randn(16, 3, 12, 12) * (0.5 + y[:, None, None, None])
    loss = F.cross_entropy(model(x), y)
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()
    if step % 30 == 0:
        print(step, round(loss.item(), 4))
print("end: running_mean moved by", round((backbone[1].running_mean - before).abs().max().item(), 4))
