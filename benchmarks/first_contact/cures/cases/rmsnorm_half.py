import math
import torch
import torch.nn.functional as F
from torch import nn

torch.set_num_threads(1)
torch.manual_seed(0)

# src: https://github.com/pytorch/pytorch/pull/133085
class RMSNorm(nn.Module):
    def __init__(self, d):
        super().__init__(); self.weight = nn.Parameter(torch.ones(d))
    def forward(self, x):
        return x * torch.rsqrt(x.pow(2).mean(-1, keepdim=True) + 1e-5) * self.weight
class Block(nn.Module):
    def __init__(self, d):
        super().__init__(); self.norm = RMSNorm(d); self.fc = nn.Linear(d, d)
    def forward(self, x): return x + F.gelu(self.fc(self.norm(x)))
class LM(nn.Module):
    def __init__(self):
        super().__init__(); self.emb = nn.Embedding(50, 32); self.blocks = nn.ModuleList(Block(32) for _ in range(2)); self.head = nn.Linear(32, 50)
    def forward(self, ids):
        x = self.emb(ids)
        for b in self.blocks: x = b(x)
        return self.head(x)
model = LM()
with torch.no_grad(): model.emb.weight[49, 3] = 3000.
with torch.no_grad(): model.head.weight[:, 3] *= 1e-3
model = model.half()
opt = torch.optim.SGD(model.parameters(), lr=1e-2)
for step in range(8):
    ids = torch.randint(0, 49, (4, 10))
    if step == 4: ids[1, 2] = 49
    logits = model(ids)
    loss = F.cross_entropy(logits.float().flatten(0, 1), ids.flatten())
    opt.zero_grad(); loss.backward(); opt.step()
    print(step, repr(loss.item()))
