"""CLIP-like contrastive training; an empty caption's embedding is the zero vector of the padding index.
Source: sauradip/STALE#16 (DivBackward0 of a normalization), neo4j/graph-data-science#94 (l2 normalization, division by zero)."""
import sys, math
import torch
from torch import nn
import torch.nn.functional as F

torch.set_num_threads(1)
torch.manual_seed(51)
CURED = "--cured" in sys.argv


def l2norm(x):
    norm = x.norm(dim=-1, keepdim=True)
    if CURED:
        norm = norm.clamp(min=1e-6)
    return x / norm  # FAULT


class CLIP(nn.Module):
    def __init__(self, vocab=90, d=32):
        super().__init__()
        self.words = nn.Embedding(vocab, d, padding_idx=0)
        self.text_proj = nn.Linear(d, 16, bias=False)
        self.vision = nn.Sequential(nn.Conv2d(3, 16, 4, 4), nn.GELU(), nn.Conv2d(16, d, 2, 2), nn.GELU(), nn.AdaptiveAvgPool2d(1), nn.Flatten(), nn.Linear(d, 16, bias=False))
        self.logit_scale = nn.Parameter(torch.tensor(math.log(1 / 0.07)))

    def forward(self, image, text):
        t = l2norm(self.text_proj(self.words(text).sum(1)))
        v = l2norm(self.vision(image))
        logits = self.logit_scale.exp().clamp(max=100) * v @ t.T
        target = torch.arange(len(image))
        return (F.cross_entropy(logits, target) + F.cross_entropy(logits.T, target)) / 2


model = torch.compile(CLIP(), backend="aot_eager")
opt = torch.optim.AdamW(model.parameters(), lr=1e-3, betas=(0.9, 0.98), weight_decay=0.1)
losses = []
for step in range(12):
    text = torch.randint(1, 90, (8, 7))
    for b, n in enumerate(torch.randint(1, 8, (8,))):
        text[b, n:] = 0
    if step == 7:
        text[5] = 0
    loss = model(torch.randn(8, 3, 16, 16), text)
    opt.zero_grad()
    loss.backward()
    opt.step()
    losses.append(loss.item())
print(losses)
print("FINITE", all(map(math.isfinite, losses)) and all(bool(p.isfinite().all()) for p in model.parameters()))
