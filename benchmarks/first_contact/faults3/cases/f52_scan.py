"""Gated linear recurrence (minGRU, Mamba-like) by a parallel scan that divides by the cumulated decay; long sequences underflow.
Source: lucidrains/minGRU-pytorch (why the log-space scan exists), F. Heinsen, arXiv 2311.06281."""
import sys, math
import torch
from torch import nn
import torch.nn.functional as F

torch.set_num_threads(1)
torch.manual_seed(52)
CURED = "--cured" in sys.argv


def scan(decay, value):
    """h_t = decay_t * h_{t-1} + value_t"""
    if CURED:
        h, out = torch.zeros_like(value[:, 0]), []
        for t in range(value.shape[1]):
            h = decay[:, t] * h + value[:, t]
            out.append(h)
        return torch.stack(out, 1)
    star = torch.cumprod(decay, 1)
    return star * torch.cumsum(value / star, 1)  # FAULT


class MinGRU(nn.Module):
    def __init__(self, d):
        super().__init__()
        self.gate, self.cand = nn.Linear(d, d), nn.Linear(d, d)

    def forward(self, x):
        z = self.gate(x).sigmoid()
        return scan(1 - z, z * torch.tanh(self.cand(x)))


class Model(nn.Module):
    def __init__(self, vocab=20, d=24):
        super().__init__()
        self.emb = nn.Embedding(vocab, d)
        self.cells = nn.ModuleList(MinGRU(d) for _ in range(2))
        self.norm = nn.RMSNorm(d)
        self.out = nn.Linear(d, vocab)

    def forward(self, ids):
        x = self.emb(ids)
        for c in self.cells:
            x = x + c(x)
        return self.out(self.norm(x))


model = Model()
opt = torch.optim.AdamW(model.parameters(), lr=3e-3)
losses = []
for step in range(14):
    length = 16 + 8 * step  # curriculum of lengths
    ids = torch.randint(0, 20, (4, length))
    loss = F.cross_entropy(model(ids)[:, :-1].flatten(0, 1), ids[:, 1:].flatten())
    opt.zero_grad()
    loss.backward()
    opt.step()
    losses.append(loss.item())
    print(step, length, losses[-1])
print("FINITE", all(map(math.isfinite, losses)) and all(bool(p.isfinite().all()) for p in model.parameters()))
