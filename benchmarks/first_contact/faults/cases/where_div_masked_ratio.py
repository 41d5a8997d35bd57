"""Ratio feature with where() after the division: the masked 0/0 comes back in backward.
Source: pytorch/pytorch#16317, pytorch/pytorch#52248."""
import sys
import torch
from torch import nn

CURED = "--cured" in sys.argv
torch.manual_seed(0)
emb = nn.EmbeddingBag(50, 8, mode="sum", padding_idx=0)
head = nn.Linear(8, 1)
opt = torch.optim.Adagrad([*emb.parameters(), *head.parameters()], lr=0.05)
for step in range(5):
    ids = torch.randint(1, 50, (4, 6))
    if step == 3:
        ids[1] = 0  # an empty bag
    total = emb(ids)
    count = (ids != 0).sum(1, keepdim=True).float()
    safe = count.clamp(min=1) if CURED else count
    mean = total / safe  # FAULT
    mean = torch.where(count > 0, mean, torch.zeros_like(mean))
    loss = (head(mean) - 1).pow(2).mean()
    opt.zero_grad()
    loss.backward()
    opt.step()
    print(step, loss.item())
