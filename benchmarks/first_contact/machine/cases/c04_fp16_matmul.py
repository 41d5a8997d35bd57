# opts: --check capsule
# truth: float16 matmul (autocast) exceeds 65504: inf in mm/addmm of big
# source: huggingface/transformers T5 fp16 overflow threads
import flips as C, torch
from torch import nn
import torch.nn.functional as F
class M(nn.Module):
    def __init__(s): super().__init__(); s.i, s.big, s.o = nn.Linear(16, 64), nn.Linear(64, 64), nn.Linear(64, 2)
    def forward(s, x): return s.o(s.big(s.i(x).relu()).tanh())  # big is FAULT
torch.manual_seed(0); m = M(); o = torch.optim.SGD(m.parameters(), 0.0)
for C.STEP in range(5):
    with torch.autocast("cpu", torch.float16): l = m(torch.randn(8, 16) * (1e5 if C.STEP == 3 else 1).__float__() * 0.9).float().square().mean()
    l.backward(); o.step(); o.zero_grad()
