# opts: --check capsule
# truth: x / x.std() of constant rows, own normalization: 0/0 forward
# source: padding rows that are zero; pytorch forum
import flips as C, torch
from torch import nn
import torch.nn.functional as F
class M(nn.Module):
    def __init__(s): super().__init__(); s.l = nn.Linear(8, 8, bias=False)
    def forward(s, x): h = s.l(x); return (h - h.mean(1, keepdim=True)) / h.std(1, keepdim=True)  # FAULT
torch.manual_seed(0); m = M(); o = torch.optim.SGD(m.parameters(), 0.01)
for C.STEP in range(4):
    x = torch.randn(6, 8)
    if C.STEP == 2: x[4] = 0
    m(x).square().mean().backward(); o.step(); o.zero_grad()
