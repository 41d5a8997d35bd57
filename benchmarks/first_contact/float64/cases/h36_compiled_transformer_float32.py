"""Healthy. Source: nanoGPT compiled; no dropout
"""
# CHECK float64,eager
import hashlib
import math

import torch
import torch.nn.functional as F
from torch import nn

torch.manual_seed(0)
class Block(nn.Module):
    def __init__(self):
        super().__init__()
        self.n, self.qkv, self.o, self.m = nn.LayerNorm(16), nn.Linear(16, 48), nn.Linear(16, 16), nn.Sequential(nn.LayerNorm(16), nn.Linear(16, 32), nn.GELU(), nn.Linear(32, 16))

    def forward(self, x):
        q, k, v = (t.view(*x.shape[:2], 2, 8).transpose(1, 2) for t in self.qkv(self.n(x)).split(16, 2))
        x = x + self.o(F.scaled_dot_product_attention(q, k, v, is_causal=True).transpose(1, 2).reshape(x.shape))
        return x + self.m(x)


model = nn.Sequential(Block(), Block(), nn.Linear(16, 4))
run = torch.compile(model)
x, y = torch.randn(4, 2, 8, 16), torch.randn(4, 2, 8, 4)
optimizer = torch.optim.AdamW(model.parameters(), lr=0.001)
for step in range(4):
    loss = F.mse_loss(run(x[step]), y[step])
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()
    print(step, loss.item(), flush=True)
digest = hashlib.sha256(b"".join(p.detach().float().contiguous().numpy().tobytes() for m in [model] for p in m.state_dict().values()))
print("weights", digest.hexdigest()[:16])
