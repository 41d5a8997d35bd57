"""causal -inf mask in own attention (karpathy/nanoGPT masked_fill -inf), torch.inf best-so-far"""
import sys
import torch
from torch import nn
import torch.nn.functional as F
from _util import done
torch.manual_seed(0); torch.set_num_threads(1)

class Attn(nn.Module):
    def __init__(self):
        super().__init__(); self.q = nn.Linear(16, 48); self.register_buffer("m", torch.full((8, 8), float("-inf")).triu(1))
    def forward(self, x):
        q, k, v = self.q(x).chunk(3, -1); return x + ((q @ k.transpose(1, 2)) / 4 + self.m).softmax(-1) @ v
net = nn.Sequential(nn.Embedding(20, 16), Attn(), Attn(), nn.Linear(16, 20)); opt = torch.optim.AdamW(net.parameters(), 1e-3); best = torch.tensor(float("inf"))
for step in range(25):
    x = torch.randint(0, 20, (4, 8)); loss = F.cross_entropy(net(x).flatten(0, 1), x.flatten()); opt.zero_grad(); loss.backward(); opt.step(); best = torch.minimum(best, loss.detach())
print(best.item()); done(best, net)
