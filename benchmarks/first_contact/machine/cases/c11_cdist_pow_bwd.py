# opts: --check capsule
# truth: pow with a tensor exponent: backward log of 0 ... gradient of 0 ** p to p and to x (p - 1 < 0): inf in backward
# source: GeM pooling by hand (learned p), github filipradenovic/cnnimageretrieval
import flips as C, torch
from torch import nn
import torch.nn.functional as F
class M(nn.Module):
    def __init__(s): super().__init__(); s.l, s.p = nn.Linear(8, 8), nn.Parameter(torch.full((8,), 0.5))
    def forward(s, x): return s.l(x).relu() ** s.p  # FAULT
torch.manual_seed(0); m = M(); o = torch.optim.SGD(m.parameters(), 0.1)
for C.STEP in range(4): m(torch.randn(16, 8)).mean().backward(); o.step(); o.zero_grad()
