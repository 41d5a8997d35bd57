"""Diversity loss -logdet(K) of a batch with two equal items.
Source: Own: torch.logdet documents -inf for a zero determinant."""
import sys
import torch
from torch import nn

CURED = "--cured" in sys.argv
torch.manual_seed(0)
emb = nn.Embedding(30, 4)
opt = torch.optim.SGD(emb.parameters(), lr=1e-3)
for step in range(5):
    ids = torch.randperm(30)[:3]
    if step == 3:
        ids = torch.tensor([4, 4, 9])
    e = emb(ids)
    k = e @ e.T
    if step == 3:
        k = k.round()  # quantised similarities, so that the determinant is exactly 0
    if CURED:
        k = k + 1e-3 * torch.eye(3)
    loss = -torch.logdet(k)  # FAULT
    opt.zero_grad()
    loss.backward()
    opt.step()
    print(step, loss.item())
