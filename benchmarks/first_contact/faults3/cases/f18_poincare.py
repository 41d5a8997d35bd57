"""Poincare embeddings of a tree with Riemannian SGD written by hand; a relation points to itself.
Source: facebookresearch/poincare-embeddings#86; M. Nickel and D. Kiela, NIPS 2017 (arcosh distance, eps in the authors' code)."""
import sys, math
import torch
from torch import nn
import torch.nn.functional as F

torch.set_num_threads(1)
torch.manual_seed(18)
CURED = "--cured" in sys.argv


class Poincare(nn.Module):
    def __init__(self, n=40, dim=4):
        super().__init__()
        self.table = nn.Embedding(n, dim)
        nn.init.uniform_(self.table.weight, -1e-2, 1e-2)

    def forward(self, u, v):
        u, v = self.table(u), self.table(v)
        sq = (u - v).pow(2).sum(-1)
        a, b = 1 - u.pow(2).sum(-1), 1 - v.pow(2).sum(-1)
        x = 1 + 2 * sq / (a * b)
        if CURED:
            x = x.clamp(min=1 + 1e-5)
        return torch.acosh(x)  # FAULT


class RSGD:
    def __init__(self, weight, lr):
        self.weight, self.lr = weight, lr

    @torch.no_grad()
    def step(self):
        w = self.weight
        scale = (1 - w.pow(2).sum(-1, keepdim=True)).pow(2) / 4
        w.sub_(self.lr * scale * w.grad)
        norm = w.norm(dim=-1, keepdim=True)
        w.copy_(torch.where(norm > 1 - 1e-5, w / norm * (1 - 1e-5), w))
        w.grad = None


edges = torch.tensor([[i, (i - 1) // 3] for i in range(1, 40)])
edges = torch.cat([edges[:17], torch.tensor([[22, 22]]), edges[17:]])
model = Poincare()
opt = RSGD(model.table.weight, 0.3)
losses, step = [], 0
for epoch in range(2):
    for part in edges.split(4):
        neg = torch.randint(0, 40, (len(part), 5))
        neg = torch.where(neg == part[:, :1], (neg + 1) % 40, neg)
        d = model(part[:, :1].expand(-1, 6), torch.cat([part[:, 1:], neg], 1))
        loss = F.cross_entropy(-d, torch.zeros(len(part), dtype=torch.long))
        loss.backward()
        opt.step()
        losses.append(loss.item())
        step += 1
print(losses)
print("FINITE", all(map(math.isfinite, losses)) and all(bool(p.isfinite().all()) for p in model.parameters()))
