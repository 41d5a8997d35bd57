"""Siamese text matching: CosineEmbeddingLoss gets labels 0/1 in place of -1/1; negatives cost nothing and everything collapses.
Source: https://github.com/pytorch/pytorch/issues/23782
Truth: mean cosine of negative pairs (should be low).
Could a tool know: yes. The target has values that are neither 1 nor -1.
"""
import sys, torch
from torch import nn
HEALTHY = "--healthy" in sys.argv
torch.set_num_threads(1); torch.manual_seed(0)

class Enc(nn.Module):
    def __init__(self):
        super().__init__(); self.e = nn.EmbeddingBag(50, 32); self.f = nn.Sequential(nn.Linear(32, 64), nn.Tanh(), nn.Linear(64, 16))
    def forward(self, t): return self.f(self.e(t))

enc = Enc(); crit = nn.CosineEmbeddingLoss(margin=0.2); opt = torch.optim.Adam(enc.parameters(), 3e-3)
def topic(k): return (k[:, None] * 10 + torch.randint(0, 10, (len(k), 8)))
for step in range(150):
    k = torch.randint(0, 5, (32,)); y = torch.randint(0, 2, (32,)); k2 = torch.where(y == 1, k, (k + torch.randint(1, 5, (32,))) % 5)
    target = (y * 2 - 1) if HEALTHY else y
    a, b = enc(topic(k)), enc(topic(k2)); loss = crit(a, b, target.float())
    opt.zero_grad(); loss.backward(); opt.step()
neg = torch.cosine_similarity(a, b)[y == 0].mean()
print(f"TRUTH cosine of negatives {neg:.3f} loss {loss:.4f}")
