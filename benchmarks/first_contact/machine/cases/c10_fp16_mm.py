# opts: --check capsule
# truth: float16 matmul under autocast whose sum passes 65504, operands finite: inf in addmm of big
# source: T5 in fp16, huggingface/transformers threads
import flips as C, torch
from torch import nn
import torch.nn.functional as F
class M(nn.Module):
    def __init__(s): super().__init__(); s.i, s.big, s.o = nn.Linear(16, 64), nn.Linear(64, 64), nn.Linear(64, 2)
    def forward(s, x): return s.o(s.big(s.i(x).relu()))  # big is FAULT
torch.manual_seed(0); m = M(); o = torch.optim.SGD(m.parameters(), 0.0)
with torch.no_grad(): m.big.weight.mul_(3e3)
for C.STEP in range(5):
    with torch.autocast("cpu", torch.float16): l = m(torch.randn(8, 16) * (100 if C.STEP == 3 else 1)).float().square().mean()
    l.backward(); o.step(); o.zero_grad()
