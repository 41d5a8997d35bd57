# opts: --check capsule
# truth: cumprod that overflows float32 after many factors: inf in aten.cumprod
# source: products of probabilities (survival models)
import flips as C, torch
from torch import nn
import torch.nn.functional as F
class M(nn.Module):
    def __init__(s): super().__init__(); s.l = nn.Linear(8, 200)
    def forward(s, x): return torch.cumprod(s.l(x) + 2, 1).mean(1)  # FAULT
torch.manual_seed(0); m = M(); o = torch.optim.SGD(m.parameters(), 0.0)
for C.STEP in range(4): m(torch.randn(4, 8) * (3 if C.STEP == 2 else 0)).tanh().mean().backward(); o.step(); o.zero_grad()
