import math
import torch
import torch.nn.functional as F
from torch import nn

torch.set_num_threads(1)
torch.manual_seed(0)

# src: https://github.com/pytorch/pytorch/issues/41508
class Dec(nn.Module):
    def __init__(self, d=16):
        super().__init__(); self.emb = nn.Embedding(30, d); self.qkv = nn.Linear(d, 3 * d); self.head = nn.Linear(d, 30)
    def forward(self, ids, keep, labels=None):
        q, k, v = self.qkv(self.emb(ids)).chunk(3, -1)
        s = q @ k.transpose(-1, -2) / 4
        causal = torch.ones(ids.shape[1], ids.shape[1], dtype=torch.bool).tril()
        s = s.masked_fill(~(causal & keep[:, None, :]), float("-inf"))
        w = s.softmax(-1)
        logits = self.head(w @ v)
        return F.cross_entropy(logits[keep], labels[keep])
model = Dec(); opt = torch.optim.Adam(model.parameters(), lr=1e-3)
for step in range(10):
    ids = torch.randint(0, 30, (4, 8)); keep = torch.ones(4, 8, dtype=torch.bool)
    if step >= 5: keep[1, :3] = False       # left padding
    loss = model(ids, keep, ids)
    opt.zero_grad(); loss.backward(); opt.step()
    print(step, repr(loss.item()))
