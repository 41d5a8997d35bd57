"""Benign: a frozen teacher computes 1 / (1 + exp(-z)) with z = -300: exp is inf, 1/inf is 0, a correct target.
Source: Own: an inf that ends in a right number."""
import torch
from torch import nn

torch.manual_seed(0)


class Teacher(nn.Module):
    def __init__(self):
        super().__init__()
        self.fc = nn.Linear(6, 3)

    def forward(self, x):
        return 1 / (1 + torch.exp(-300 * self.fc(x)))


teacher = Teacher().requires_grad_(False)
student = nn.Sequential(nn.Linear(6, 32), nn.ReLU(), nn.Linear(32, 3))
opt = torch.optim.Adam(student.parameters(), lr=1e-2)
for step in range(5):
    x = torch.randn(16, 6) * 3
    with torch.no_grad():
        target = teacher(x)
    loss = nn.functional.binary_cross_entropy_with_logits(student(x), target)
    opt.zero_grad()
    loss.backward()
    opt.step()
    print(step, loss.item())
assert loss.isfinite()
