"""Preprocessing casts raw sensor counts to float16 before they are normalised: 70000 becomes inf.
Source: pytorch/pytorch#115500 (inputs beyond 65504)."""
import sys
import torch
from torch import nn

CURED = "--cured" in sys.argv
torch.manual_seed(0)
net = nn.Sequential(nn.Linear(8, 16), nn.GELU(), nn.Linear(16, 1)).half()
opt = torch.optim.SGD(net.parameters(), lr=1e-3)


def prepare(counts):
    if CURED:
        return ((counts - 30000.0) / 20000.0).half()
    half = counts.half()  # FAULT
    return (half - 30000) / 20000


for step in range(4):
    counts = torch.randint(0, 60000, (8, 8)).float()
    if step == 2:
        counts[3, 3] = 70000.0
    loss = (net(prepare(counts)).float() - 1).abs().mean()
    opt.zero_grad()
    loss.backward()
    opt.step()
    print(step, loss.item())
