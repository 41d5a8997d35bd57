# opts: --check capsule
# truth: convolution in float32 whose sum overflows: inf in aten.convolution at conv
# source: uninitialized images as data; invented
import flips as C, torch
from torch import nn
import torch.nn.functional as F
class M(nn.Module):
    def __init__(s): super().__init__(); s.c, s.f = nn.Conv2d(3, 8, 3), nn.Linear(8, 2)
    def forward(s, x): return s.f(s.c(x).mean((2, 3)))  # FAULT
torch.manual_seed(0); m = M(); o = torch.optim.SGD(m.parameters(), 0.0)
for C.STEP in range(4): m(torch.randn(2, 3, 10, 10).abs() * (3.2e38 / 4 if C.STEP == 2 else 1)).tanh().sum().backward(); o.step(); o.zero_grad()
