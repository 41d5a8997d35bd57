"""Cosine head in float16: F.normalize's eps of 1e-12 is 0 there, and a row is all zeros.
Source: pytorch/pytorch#147437 and google-deepmind/optax#1769 (eps lost in float16), kscalelabs/minppo#19."""
import sys
import torch
import torch.nn.functional as F
from torch import nn

CURED = "--cured" in sys.argv
torch.manual_seed(0)
net = nn.Sequential(nn.Linear(6, 16, bias=False), nn.ReLU(), nn.Linear(16, 8, bias=False)).half()
opt = torch.optim.SGD(net.parameters(), lr=1e-2)
for step in range(4):
    x = torch.randn(4, 6).half()
    if step == 2:
        x[3] = 0
    a = F.normalize(net(x), dim=1, eps=1e-4 if CURED else 1e-12)  # FAULT
    loss = (a @ a.T).float().logsumexp(1).mean()
    opt.zero_grad()
    loss.backward()
    opt.step()
    print(step, loss.item())
