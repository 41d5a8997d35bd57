"""Safe functions by torch.where twice, and a frozen teacher whose own sigmoid overflows to 1 / (1 + inf) = 0 without gradients.
Source: pytorch/pytorch#68425 and #52248 (the workaround), google/jax FAQ "double where"."""
import math, torch
from torch import nn
torch.set_num_threads(1)
torch.manual_seed(20)


def safe_log(x):
    ok = x > 0
    return torch.where(ok, torch.log(torch.where(ok, x, torch.ones_like(x))), torch.zeros_like(x))


class Teacher(nn.Module):
    def __init__(self):
        super().__init__()
        self.lin = nn.Linear(6, 4)

    def forward(self, x):
        return 1 / (1 + torch.exp(-60 * self.lin(x)))  # exp overflows to inf: 1 / inf is the right 0


teacher, student = Teacher().requires_grad_(False), nn.Sequential(nn.Linear(6, 32), nn.ReLU(), nn.Linear(32, 4))
opt = torch.optim.Adam(student.parameters(), lr=1e-2)
losses = []
for step in range(50):
    x = torch.randn(64, 6)
    with torch.no_grad():
        t = teacher(x)
    loss = nn.functional.binary_cross_entropy_with_logits(student(x), t) + 0.01 * safe_log(torch.relu(student(x).mean(0))).pow(2).mean()
    opt.zero_grad()
    loss.backward()
    opt.step()
    losses.append(loss.item())
print(losses[0], losses[-1], "FINITE", all(map(math.isfinite, losses)) and all(bool(p.isfinite().all()) for p in student.parameters()))
