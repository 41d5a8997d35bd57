"""The distillation's teacher stays in train mode: its targets have dropout.

Source: https://github.com/yxuansu/TaCL/issues/11
Truth: two calls of the teacher with one input differ
Could a tool know: yes: a model that is never trained makes targets in train mode with dropout
"""
import sys

import torch
import torch.nn.functional as F
from torch import nn

torch.set_num_threads(1)
torch.manual_seed(0)
HEALTHY = "--healthy" in sys.argv

centers = torch.randn(10, 20)


def batch(n=64):
    y = torch.randint(0, 10, (n,))
    return centers[y] + torch.randn(n, 20), y


teacher = nn.Sequential(nn.Linear(20, 64), nn.ReLU(), nn.Dropout(0.3), nn.Linear(64, 10))
student = nn.Sequential(nn.Linear(20, 16), nn.ReLU(), nn.Linear(16, 10))
optimizer = torch.optim.AdamW(teacher.parameters(), lr=3e-3)
for step in range(120):
    x, y = batch()
    loss = F.cross_entropy(teacher(x), y)
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()
if HEALTHY:
    teacher.eval()
optimizer = torch.optim.AdamW(student.parameters(), lr=3e-3)
for step in range(200):
    x, y = batch()
    with torch.no_grad():
        target = (teacher(x) / 2).softmax(-1)
    out = student(x)
    loss = 0.5 * F.cross_entropy(out, y) + 2 * F.kl_div((out / 2).log_softmax(-1), target, reduction="batchmean")
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()
    if step % 50 == 0:
        print(step, round(loss.item(), 4))
print("end: two calls of the teacher are equal", torch.equal(teacher(x), teacher(x)))
