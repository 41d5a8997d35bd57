import math
import torch
import torch.nn.functional as F
from torch import nn

torch.set_num_threads(1)
torch.manual_seed(0)

# src: https://github.com/tracel-ai/burn/pull/4697 (0/0 of a row sum)
class LinAttn(nn.Module):
    def __init__(self, d=16):
        super().__init__(); self.q = nn.Linear(d, 4); self.k = nn.Linear(d, 4); self.v = nn.Linear(d, d)
    def forward(self, x):
        q, k, v = F.relu(self.q(x)), F.relu(self.k(x)), self.v(x)
        kv = k.transpose(1, 2) @ v
        den = (q * k.sum(1, keepdim=True)).sum(-1, keepdim=True)
        return (q @ kv) / den
class M(nn.Module):
    def __init__(self):
        super().__init__(); self.emb = nn.Embedding(50, 16); self.att = LinAttn(); self.out = nn.Linear(16, 3)
    def forward(self, ids): return self.out(self.att(self.emb(ids)).mean(1))
model = M()
with torch.no_grad(): model.att.q.bias.zero_(); model.att.k.bias += 3; model.emb.weight[7] = 0.
opt = torch.optim.Adam(model.parameters(), lr=1e-3)
for step in range(9):
    ids = torch.randint(8, 50, (4, 6)); y = torch.randint(0, 3, (4,))
    if step == 0: ids[0, 0] = 7
    loss = F.cross_entropy(model(ids), y); opt.zero_grad(); loss.backward(); opt.step()
    print(step, repr(loss.item()))
