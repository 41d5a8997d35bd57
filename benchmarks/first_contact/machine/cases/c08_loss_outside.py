# opts: --check capsule
# truth: 0/0 in the loss outside of the model (docs: no capsule, a line says so)
# source: cross_entropy with ignore_index everywhere (pytorch/pytorch#75181-like)
import flips as C, torch
from torch import nn
import torch.nn.functional as F
m = nn.Linear(8, 2); o = torch.optim.Adam(m.parameters())
for C.STEP in range(5):
    y = m(torch.randn(4, 8)); k = (torch.rand(4) > 0.3) & (C.STEP != 3); ((y.square().sum(1) * k).sum() / k.sum()).backward(); o.step(); o.zero_grad()  # FAULT
