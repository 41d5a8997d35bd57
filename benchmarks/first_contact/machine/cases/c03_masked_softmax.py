# opts: --check capsule
# truth: softmax of a row that is all -inf: nan in softmax
# source: pytorch/pytorch#41508 (nan of fully masked rows)
import flips as C, torch
from torch import nn
import torch.nn.functional as F
class M(nn.Module):
    def __init__(s): super().__init__(); s.q, s.k, s.v = (nn.Linear(16, 16) for _ in range(3))
    def forward(s, x, k):
        w = (s.q(x) @ s.k(x).transpose(1, 2)).masked_fill(k[:, None], float("-inf"))
        return w.softmax(-1) @ s.v(x)  # FAULT
m = M(); o = torch.optim.AdamW(m.parameters())
for C.STEP in range(5):
    k = torch.zeros(4, 9, dtype=torch.bool); k[2] = C.STEP == 2; m(torch.randn(4, 9, 16), k).square().mean().backward(); o.step(); o.zero_grad()
