"""One feed-forward module is given to every transformer layer.

Source: https://github.com/habla-liaa/encodecmae/issues/3
Truth: number of parameters: one feed-forward instead of four
Could a tool know: partly: one module has several parents; sharing may be meant
"""
import sys

import torch
import torch.nn.functional as F
from torch import nn

torch.set_num_threads(1)
torch.manual_seed(0)
HEALTHY = "--healthy" in sys.argv


class Layer(nn.Module):
    def __init__(self, d, ff):
        super().__init__()
        self.att = nn.MultiheadAttention(d, 4, batch_first=True)
        self.n1, self.n2, self.ff = nn.LayerNorm(d), nn.LayerNorm(d), ff

    def forward(self, x):
        y = self.n1(x)
        x = x + self.att(y, y, y, need_weights=False)[0]
        return x + self.ff(self.n2(x))


def make_ff(d):
    return nn.Sequential(nn.Linear(d, 4 * d), nn.ReLU(), nn.Linear(4 * d, d))


class Model(nn.Module):
    def __init__(self, d=32):
        super().__init__()
        self.embed = nn.Embedding(30, d)
        ff = make_ff(d)
        self.layers = nn.ModuleList(Layer(d, make_ff(d) if HEALTHY else ff) for _ in range(4))
        self.head = nn.Linear(d, 30)

    def forward(self, t):
        x = self.embed(t)
        for layer in self.layers:
            x = layer(x)
        return self.head(x)


model = Model()
optimizer = torch.optim.AdamW(model.parameters(), lr=1e-3)
for step in range(200):
    tokens = torch.randint(1, 30, (16, 16))
    loss = F.cross_entropy(model(tokens).flatten(0, 1), tokens.sort(1).values.flatten())
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()
    if step % 50 == 0:
        print(step, round(loss.item(), 4))
print("end: parameters", sum(p.numel() for p in model.parameters()))
