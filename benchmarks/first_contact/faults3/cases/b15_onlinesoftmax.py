"""Blockwise attention with an online softmax: the running maximum starts at -inf.
Source: T. Dao et al., arXiv 2205.14135 (m = -inf); lucidrains/memory-efficient-attention-pytorch."""
import math, torch
from torch import nn
import torch.nn.functional as F
torch.set_num_threads(1)
torch.manual_seed(15)


def blockwise(q, k, v, block=4):
    m = torch.full(q.shape[:-1], float("-inf"))
    total = torch.zeros(q.shape[:-1])
    out = torch.zeros_like(q)
    for kb, vb in zip(k.split(block, 1), v.split(block, 1)):
        s = q @ kb.transpose(1, 2) / q.shape[-1] ** 0.5
        new = torch.maximum(m, s.amax(-1).detach())
        scale = torch.exp(m - new)
        p = torch.exp(s - new[..., None])
        total = total * scale + p.sum(-1)
        out = out * scale[..., None] + p @ vb
        m = new
    return out / total[..., None]


class Net(nn.Module):
    def __init__(self, d=24):
        super().__init__()
        self.emb, self.qkv, self.out = nn.Embedding(20, d), nn.Linear(d, 3 * d), nn.Linear(d, 20)

    def forward(self, ids):
        x = self.emb(ids)
        return self.out((x + blockwise(*self.qkv(x).chunk(3, -1))).mean(1))


net = Net()
opt = torch.optim.Adam(net.parameters(), lr=1e-2)
losses = []
for step in range(50):
    ids = torch.randint(0, 20, (32, 12))
    loss = F.cross_entropy(net(ids), ids.amax(1))
    opt.zero_grad()
    loss.backward()
    opt.step()
    losses.append(loss.item())
print(losses[0], losses[-1], "FINITE", all(map(math.isfinite, losses)) and all(bool(p.isfinite().all()) for p in net.parameters()))
