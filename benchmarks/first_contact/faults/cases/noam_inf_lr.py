"""The Noam schedule with NumPy: step ** -0.5 at step 0 is inf (Python would raise), and lr * 0-gradients are nan.
Source: Own: the schedule of Vaswani et al. 2017, section 5.3, from step 0."""
import sys
import warnings
import numpy as np
import torch
from torch import nn

warnings.simplefilter("ignore")
CURED = "--cured" in sys.argv
torch.manual_seed(0)
net = nn.TransformerEncoderLayer(16, 2, 32, dropout=0.0, batch_first=True)
head = nn.Linear(16, 5)
params = [*net.parameters(), *head.parameters()]
opt = torch.optim.SGD(params, lr=1.0)


def noam(step, width=16, warmup=0):
    step, warmup = np.float64(step), np.float64(warmup)
    if CURED:
        step, warmup = max(step, 1.0), max(warmup, 400.0)
    return float(width**-0.5 * np.minimum(step**-0.5, step * warmup**-1.5 if warmup else np.inf))


for step in range(3):
    for g in opt.param_groups:
        g["lr"] = noam(step)
    loss = nn.functional.cross_entropy(head(net(torch.randn(2, 6, 16))).flatten(0, 1), torch.randint(5, (12,)))
    opt.zero_grad()
    loss.backward()
    opt.step()  # FAULT
    print(step, loss.item())
