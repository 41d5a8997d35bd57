"""Benign: a GPT with an own causal mask of -inf, kept as a buffer.
Source: karpathy/minGPT's attention (masked_fill with -inf)."""
import torch
from torch import nn

torch.manual_seed(0)


class Attention(nn.Module):
    def __init__(self, w, n):
        super().__init__()
        self.qkv, self.out = nn.Linear(w, 3 * w), nn.Linear(w, w)
        self.register_buffer("mask", torch.full((n, n), float("-inf")).triu(1))

    def forward(self, x):
        q, k, v = self.qkv(x).chunk(3, -1)
        s = q @ k.mT / q.shape[-1] ** 0.5 + self.mask[: x.shape[1], : x.shape[1]]
        return x + self.out(s.softmax(-1) @ v)


net = nn.Sequential(nn.Embedding(20, 16), Attention(16, 12), Attention(16, 12), nn.Linear(16, 20))
opt = torch.optim.AdamW(net.parameters(), lr=1e-3)
for step in range(6):
    ids = torch.randint(20, (3, 10))
    loss = nn.functional.cross_entropy(net(ids[:, :-1]).flatten(0, 1), ids[:, 1:].flatten())
    opt.zero_grad()
    loss.backward()
    opt.step()
    print(step, loss.item())
