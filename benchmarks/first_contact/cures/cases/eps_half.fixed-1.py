import math
import torch
import torch.nn.functional as F
from torch import nn

torch.set_num_threads(1)
torch.manual_seed(0)

# src: https://github.com/mlx-graphs/mlx-graphs/pull/18 (eps not representable in float16)
class CosAttn(nn.Module):
    def __init__(self):
        super().__init__(); self.emb = nn.Embedding(30, 16, padding_idx=0); self.p = nn.Linear(16, 16, bias=False); self.o = nn.Linear(16, 30)
    def forward(self, ids):
        x = self.p(self.emb(ids))
        y = x.pow(2).sum(-1, keepdim=True).sqrt() + 1e-8; n = x / torch.where(y.abs() < 0.01, 0.01, y)
        return self.o(torch.softmax(n @ n.transpose(1, 2), -1) @ x)
model = CosAttn().half(); opt = torch.optim.SGD(model.parameters(), lr=1e-3)
for step in range(8):
    ids = torch.randint(1, 30, (3, 8))
    if step == 3: ids[:, 6:] = 0
    loss = F.cross_entropy(model(ids).float().flatten(0, 1), ids.flatten(), ignore_index=0)
    opt.zero_grad(); loss.backward(); opt.step(); print(step, repr(loss.item()))
