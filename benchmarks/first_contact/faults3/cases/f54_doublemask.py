"""A float16 decoder masks with the dtype's smallest number and sharpens the scores after; with left padding whole rows become -inf.
Source: EleutherAI/gpt-neox#25 ("a max negative value for the mask may lead to overflow"), huggingface/transformers#38690."""
import sys, math
import torch
from torch import nn
import torch.nn.functional as F

torch.set_num_threads(1)
torch.manual_seed(54)
CURED = "--cured" in sys.argv


class Attention(nn.Module):
    def __init__(self, d, heads):
        super().__init__()
        self.heads, self.tau = heads, 0.7
        self.q, self.k, self.v, self.o = (nn.Linear(d, d) for _ in range(4))

    def forward(self, x, causal, padding):
        b, n, d = x.shape
        q, k, v = (f(x).view(b, n, self.heads, -1).transpose(1, 2) for f in (self.q, self.k, self.v))
        scores = q @ k.transpose(2, 3) / (d // self.heads) ** 0.5
        mask = torch.minimum(causal, padding)
        if CURED:
            scores = scores / self.tau + mask
        else:
            scores = (scores + mask) / self.tau
        return self.o((F.softmax(scores, dim=-1) @ v).transpose(1, 2).reshape(b, n, d))  # FAULT


class Decoder(nn.Module):
    def __init__(self, vocab=50, d=32):
        super().__init__()
        self.emb = nn.Embedding(vocab, d)
        self.norms = nn.ModuleList(nn.LayerNorm(d) for _ in range(2))
        self.layers = nn.ModuleList(Attention(d, 4) for _ in range(2))
        self.out = nn.Linear(d, vocab)

    def forward(self, ids, keep):
        x = self.emb(ids)
        low = torch.finfo(x.dtype).min
        n = ids.shape[1]
        causal = torch.triu(torch.full((n, n), low, dtype=x.dtype), 1)
        padding = (1 - keep.to(x.dtype))[:, None, None] * low
        for norm, layer in zip(self.norms, self.layers):
            x = x + layer(norm(x), causal, padding)
        return self.out(x)


model = Decoder().half()
opt = torch.optim.SGD(model.parameters(), lr=0.05, momentum=0.9)
losses = []
for step in range(12):
    ids = torch.randint(1, 50, (4, 14))
    keep = torch.ones_like(ids)
    if step >= 5:  # batched with left padding
        keep[1, :6] = 0
    loss = F.cross_entropy(model(ids, keep)[:, :-1].float().flatten(0, 1), ids[:, 1:].flatten(), reduction="none")
    loss = (loss * keep[:, 1:].flatten()).sum() / keep.sum()
    opt.zero_grad()
    loss.backward()
    opt.step()
    losses.append(loss.item())
print(losses)
print("FINITE", all(map(math.isfinite, losses)) and all(bool(p.isfinite().all()) for p in model.parameters()))
