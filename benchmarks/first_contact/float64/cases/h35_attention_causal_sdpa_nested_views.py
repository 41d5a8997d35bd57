"""Healthy. Source: nanoGPT, scaled_dot_product_attention with dropout and is_causal, views and transposes, tied weights
"""
# CHECK float64
import hashlib
import math

import torch
import torch.nn.functional as F
from torch import nn

torch.manual_seed(0)
class GPT(nn.Module):
    def __init__(self):
        super().__init__()
        self.e, self.p, self.qkv, self.o, self.n, self.head = nn.Embedding(40, 32), nn.Embedding(16, 32), nn.Linear(32, 96, bias=False), nn.Linear(32, 32), nn.LayerNorm(32), nn.Linear(32, 40, bias=False)
        self.head.weight = self.e.weight

    def forward(self, i):
        x = self.e(i) + self.p(torch.arange(i.shape[1]))
        q, k, v = (t.view(*i.shape, 4, 8).transpose(1, 2) for t in self.qkv(self.n(x)).split(32, 2))
        a = F.scaled_dot_product_attention(q, k, v, is_causal=True, dropout_p=0.1)
        return self.head(x + self.o(a.transpose(1, 2).reshape(*i.shape, 32)))


model = GPT()
i = torch.randint(0, 40, (4, 2, 16))
optimizer = torch.optim.AdamW(model.parameters(), lr=0.001)
for step in range(4):
    loss = F.cross_entropy(model(i[step]).flatten(0, 1), i[step].roll(-1, 1).flatten())
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()
    print(step, loss.item(), flush=True)
digest = hashlib.sha256(b"".join(p.detach().float().contiguous().numpy().tobytes() for m in [model] for p in m.state_dict().values()))
print("weights", digest.hexdigest()[:16])
