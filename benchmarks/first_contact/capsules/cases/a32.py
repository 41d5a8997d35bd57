"""attention with a fully masked row in the model
Source: pytorch/pytorch#103749
"""
import torch
import torch.nn.functional as F
from torch import nn

import kit

torch.manual_seed(0)
class Attention(nn.Module):
    def __init__(self):
        super().__init__()
        self.qkv, self.out = nn.Linear(6, 24), nn.Linear(8, 4)

    def forward(self, x, mask):
        q, k, v = self.qkv(x).chunk(3, -1)
        s = (q @ k.transpose(1, 2)).masked_fill(mask[:, None], float("-inf"))
        return self.out(s.softmax(-1) @ v)


model = Attention()
opt = torch.optim.AdamW(model.parameters(), 1e-3)


def loss_at(k):
    lengths = torch.tensor([5, 3, 0 if k == 3 else 2, 1])
    mask = torch.arange(5)[None] >= lengths[:, None]
    return model(torch.randn(4, 5, 6), mask).square().mean()

for k in range(5):
    opt.zero_grad()
    loss = loss_at(k)
    loss.backward()
    opt.step()
    print(k, kit.bits(loss), kit.digest(model, opt))
