# opts: --check capsule
# truth: exp of numbers past 88.7 in bfloat16: inf in aten.exp
# source: softmax by hand, StackOverflow 42599498
import flips as C, torch
from torch import nn
import torch.nn.functional as F
class M(nn.Module):
    def __init__(s): super().__init__(); s.l = nn.Linear(8, 300)
    def forward(s, x): y = s.l(x); return torch.exp(y * 4) / torch.exp(y * 4).sum(1, keepdim=True)  # FAULT
torch.manual_seed(0); m = M().bfloat16(); o = torch.optim.SGD(m.parameters(), 0.1)
for C.STEP in range(5): m((torch.randn(64, 8) * (60 if C.STEP == 3 else 1)).bfloat16()).float().square().mean().backward(); o.step(); o.zero_grad()
