"""attention scores overflow under float16 autocast
Source: huggingface/transformers#11461
"""
import torch
import torch.nn.functional as F
from torch import nn

import kit

torch.manual_seed(0)
class Attention(nn.Module):
    def __init__(self):
        super().__init__()
        self.qkv, self.out = nn.Linear(16, 48, bias=False), nn.Linear(16, 16)

    def forward(self, x):
        q, k, v = self.qkv(x).chunk(3, -1)
        s = q @ k.transpose(1, 2) / 4
        return self.out(s.softmax(-1) @ v)


model = nn.Sequential(nn.Linear(6, 16), Attention(), nn.LayerNorm(16), nn.Linear(16, 4))
opt = torch.optim.AdamW(model.parameters(), 1e-3)


def loss_at(k):
    x = torch.randn(4, 5, 6) * (1.0 if k < 3 else 700.0)
    with torch.autocast("cpu", dtype=torch.float16):
        out = model(x)
    return out.float().square().mean()

for k in range(8):
    kit.now = k
    opt.zero_grad()
    loss = loss_at(k)
    loss.backward()
    opt.step()
    print(k, kit.bits(loss), kit.digest(model, opt))
