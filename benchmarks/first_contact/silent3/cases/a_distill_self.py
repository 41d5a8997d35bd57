"""The distillation term compares the teacher's probabilities with the teacher's own logits: it has no gradient, and nothing is distilled.
Source: https://github.com/labmlai/annotated_deep_learning_paper_implementations/issues/66
Truth: the distillation loss is constant 0 and does not require grad; the student learns from the labels alone.
Could a tool know: partly: a loss term (kl_div) of weight 0.9 gets no tensor with gradient, and is the same in all steps.
"""
import sys
import torch
from torch import nn
import torch.nn.functional as F

HEALTHY = "--healthy" in sys.argv
torch.manual_seed(0)
torch.set_num_threads(1)
protos = torch.randn(6, 1, 10, 10)


def cnn(c):
    return nn.Sequential(nn.Conv2d(1, c, 3), nn.BatchNorm2d(c), nn.ReLU(), nn.Conv2d(c, c, 3), nn.ReLU(), nn.Flatten(),
                         nn.Linear(c * 36, 6))


def batch(n=32):
    y = torch.randint(0, 6, (n,))
    return protos[y] + 0.7 * torch.randn(n, 1, 10, 10), y


large, small = cnn(16), cnn(3)
opt = torch.optim.Adam(large.parameters(), lr=2e-3)
for _ in range(60):
    x, y = batch()
    loss = F.cross_entropy(large(x), y)
    opt.zero_grad()
    loss.backward()
    opt.step()
large.eval()
opt = torch.optim.Adam(small.parameters(), lr=2e-3)
T = 3.0
for step in range(140):
    x, y = batch()
    with torch.no_grad():
        large_logits = large(x)
    output = small(x)
    soft_targets = F.softmax(large_logits / T, dim=-1)
    soft_prob = F.log_softmax((output if HEALTHY else large_logits) / T, dim=-1)
    soft_loss = F.kl_div(soft_prob, soft_targets, reduction="batchmean")
    loss = 0.9 * T**2 * soft_loss + 0.1 * F.cross_entropy(output, y)
    opt.zero_grad()
    loss.backward()
    opt.step()
print(f"loss {loss.item():.4f} distillation {soft_loss.item():.5f} has gradient {soft_loss.requires_grad}")
