"""Benign: a compiled transformer layer with a float mask of -inf and padding.
Source: karpathy/minGPT's attention, compiled."""
import torch
from torch import nn

torch.manual_seed(0)


class Net(nn.Module):
    def __init__(self):
        super().__init__()
        self.embed, self.qkv, self.out = nn.Embedding(20, 16), nn.Linear(16, 48), nn.Linear(16, 20)

    def forward(self, ids):
        x = self.embed(ids)
        q, k, v = self.qkv(x).chunk(3, -1)
        n = ids.shape[1]
        s = q @ k.mT / 4
        s = s.masked_fill(torch.ones(n, n, dtype=torch.bool).triu(1), float("-inf"))
        s = s.masked_fill((ids == 0)[:, None], float("-inf"))
        return self.out(x + s.softmax(-1) @ v)


net = Net()
fast = torch.compile(net, backend="aot_eager")
opt = torch.optim.AdamW(net.parameters(), lr=1e-3)
for step in range(4):
    ids = torch.randint(1, 20, (3, 8))
    ids[:, 6:] = 0
    loss = nn.functional.cross_entropy(fast(ids).flatten(0, 1), ids.flatten())
    opt.zero_grad()
    loss.backward()
    opt.step()
    print(step, loss.item())
assert loss.isfinite()
