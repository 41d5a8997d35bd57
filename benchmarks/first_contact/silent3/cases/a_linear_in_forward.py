"""The attention's output projection is nn.Linear(...) made in forward: a new random matrix in each call, never trained.
Source: https://github.com/graykode/nlp-tutorial/issues/29
Truth: two calls in eval mode with the same input differ (healthy: equal).
Could a tool know: yes: gradients arrive at leaf tensors that nothing holds and no optimizer has.
"""
import sys
import torch
from torch import nn

HEALTHY = "--healthy" in sys.argv
torch.manual_seed(0)
torch.set_num_threads(1)


class MultiHead(nn.Module):
    def __init__(self, d=32, h=4):
        super().__init__()
        self.h = h
        self.wq, self.wk, self.wv = nn.Linear(d, d), nn.Linear(d, d), nn.Linear(d, d)
        self.norm = nn.LayerNorm(d)
        if HEALTHY:
            self.out = nn.Linear(d, d)

    def forward(self, x):
        b, t, d = x.shape
        q, k, v = (f(x).view(b, t, self.h, -1).transpose(1, 2) for f in (self.wq, self.wk, self.wv))
        ctx = (torch.softmax(q @ k.transpose(-1, -2) / (d // self.h) ** 0.5, -1) @ v).transpose(1, 2).reshape(b, t, d)
        output = self.out(ctx) if HEALTHY else nn.Linear(d, d)(ctx)
        return self.norm(output + x)


class Encoder(nn.Module):
    def __init__(self):
        super().__init__()
        self.emb, self.att, self.cls = nn.Embedding(30, 32), MultiHead(), nn.Linear(32, 30)

    def forward(self, ids):
        return self.cls(self.att(self.emb(ids)))


model = Encoder()
opt = torch.optim.Adam(model.parameters(), lr=2e-3)
for step in range(150):
    ids = torch.randint(0, 30, (16, 8))
    loss = nn.functional.cross_entropy(model(ids).flatten(0, 1), ids.flip(1).flatten())
    opt.zero_grad()
    loss.backward()
    opt.step()
model.eval()
with torch.no_grad():
    print(f"loss {loss.item():.4f} two calls differ by {(model(ids) - model(ids)).abs().max():.3e}")
