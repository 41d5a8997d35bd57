"""A decoder whose causal mask of -inf is a registered buffer for the whole run.
Source: pytorch/examples word_language_model, openai/CLIP build_attention_mask (mask.fill_(float("-inf")); mask.triu_(1))."""
import math, torch
from torch import nn
import torch.nn.functional as F
torch.set_num_threads(1)
torch.manual_seed(10)


class Decoder(nn.Module):
    def __init__(self, vocab=30, d=32, n=12):
        super().__init__()
        self.tok, self.pos = nn.Embedding(vocab, d), nn.Parameter(torch.randn(n, d) * 0.02)
        self.register_buffer("mask", torch.full((n, n), float("-inf")).triu_(1))
        self.qkv, self.proj, self.norm, self.out = nn.Linear(d, 3 * d), nn.Linear(d, d), nn.LayerNorm(d), nn.Linear(d, vocab)

    def forward(self, ids):
        x = self.tok(ids) + self.pos[: ids.shape[1]]
        q, k, v = self.qkv(self.norm(x)).chunk(3, -1)
        att = q @ k.transpose(1, 2) / q.shape[-1] ** 0.5 + self.mask[: ids.shape[1], : ids.shape[1]]
        return self.out(x + self.proj(att.softmax(-1) @ v))


model = Decoder()
opt = torch.optim.AdamW(model.parameters(), lr=5e-3)
losses = []
for step in range(40):
    ids = (torch.randint(0, 30, (8, 1)) + torch.arange(12) * 3) % 30
    loss = F.cross_entropy(model(ids)[:, :-1].flatten(0, 1), ids[:, 1:].flatten())
    opt.zero_grad()
    loss.backward()
    opt.step()
    losses.append(loss.item())
print(losses[0], losses[-1], "FINITE", all(map(math.isfinite, losses)) and all(bool(p.isfinite().all()) for p in model.parameters()))
