"""Shortest: one exponent bit of one result flips from 1 to 0, so the element becomes tiny; said "step is not reproducible" without the bit."""
import torch

import kit

torch.manual_seed(3)
model = torch.nn.Linear(8, 16)
opt = torch.optim.SGD(model.parameters(), 0.1)
kit.flip("aten.addmm.default", 1, 30, element=5)
for kit.now in range(4):
    opt.zero_grad()
    model(torch.randn(8, 8)).square().mean().backward()
    opt.step()
