"""Benign: bfloat16 masks of finfo.min are added and overflow to -inf; every row keeps an entry.
Source: NVIDIA-NeMo/Automodel#2658, huggingface/transformers#27114."""
import torch
from torch import nn

torch.manual_seed(0)
LOW = torch.finfo(torch.bfloat16).min


class Attention(nn.Module):
    def __init__(self, w):
        super().__init__()
        self.qkv = nn.Linear(w, 3 * w)

    def forward(self, x, pad):
        q, k, v = self.qkv(x).chunk(3, -1)
        n = x.shape[1]
        causal = torch.zeros(n, n, dtype=x.dtype).masked_fill(torch.ones(n, n).triu(1).bool(), LOW)
        padding = torch.zeros(pad.shape, dtype=x.dtype).masked_fill(pad, LOW)[:, None]
        mask = causal + padding
        assert mask.isinf().any()
        return x + (q @ k.mT * q.shape[-1] ** -0.5 + mask).softmax(-1) @ v


class Net(nn.Module):
    def __init__(self):
        super().__init__()
        self.embed, self.attn, self.out = nn.Embedding(20, 16), Attention(16), nn.Linear(16, 20)

    def forward(self, ids):
        return self.out(self.attn(self.embed(ids), ids == 0))


net = Net().bfloat16()
opt = torch.optim.SGD(net.parameters(), lr=1e-2)
for step in range(5):
    ids = torch.randint(1, 20, (3, 8))
    ids[:, 6:] = 0
    loss = nn.functional.cross_entropy(net(ids).float().flatten(0, 1), ids.flatten())
    opt.zero_grad()
    loss.backward()
    opt.step()
    print(step, loss.item())
assert loss.isfinite()
