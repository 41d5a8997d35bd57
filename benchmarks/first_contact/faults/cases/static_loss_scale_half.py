"""A pure float16 model with a static loss scale of 2^15: the backward leaves float16's range, the forward is healthy.
Source: NVIDIA mixed-precision guide (static loss scaling), pytorch/pytorch#8860."""
import sys
import torch
from torch import nn

CURED = "--cured" in sys.argv
torch.manual_seed(0)
SCALE = 2.0**4 if CURED else 2.0**15


class Regressor(nn.Module):
    def __init__(self):
        super().__init__()
        self.inner, self.outer = nn.Linear(8, 32), nn.Linear(32, 1)

    def forward(self, x):
        h = torch.relu(self.inner(x))
        return self.outer(h)  # FAULT


net = Regressor().half()
opt = torch.optim.SGD(net.parameters(), lr=1e-4)
for step in range(4):
    x = torch.randn(16, 8).half()
    y = torch.randn(16, 1).half()
    if step == 2:
        y = y * 300
    pred = net(x)
    err = pred.float() - y.float()  # FAULT
    loss = err.pow(2).mean()
    opt.zero_grad()
    (loss * SCALE).backward()
    for p in net.parameters():
        p.grad.div_(SCALE)
    opt.step()
    print(step, loss.item())
