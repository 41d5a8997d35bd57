"""F.kl_div gets softmax in place of log_softmax.

Source: https://github.com/microsoft/ProDA/issues/20 (and sebastian-hofstaetter/matchmaker#18)
Truth: the loss is negative, which no KL divergence is; the student does not follow the teacher
Could a tool know: yes: kl_div's input holds positive numbers that sum to 1
"""
import sys

import torch
import torch.nn.functional as F
from torch import nn

torch.set_num_threads(1)
torch.manual_seed(0)
HEALTHY = "--healthy" in sys.argv

teacher = nn.Sequential(nn.Linear(20, 64), nn.Tanh(), nn.Linear(64, 10)).requires_grad_(False).eval()
with torch.no_grad():
    teacher[2].weight.mul_(6)
student = nn.Sequential(nn.Linear(20, 32), nn.ReLU(), nn.Linear(32, 10))
optimizer = torch.optim.AdamW(student.parameters(), lr=2e-3)
for step in range(300):
    x = torch.randn(64, 20)
    with torch.no_grad():
        target = teacher(x).softmax(-1)
    out = student(x)
    out = out.log_softmax(-1) if HEALTHY else out.softmax(-1)
    loss = F.kl_div(out, target, reduction="batchmean")
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()
    if step % 50 == 0:
        print(step, round(loss.item(), 4))
with torch.no_grad():
    x = torch.randn(500, 20)
    true = F.kl_div(student(x).log_softmax(-1), teacher(x).softmax(-1), reduction="batchmean").item()
print("end: loss", round(loss.item(), 4), "true divergence", round(true, 4))
