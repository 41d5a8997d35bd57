"""A positional encoding of shape (max_len, 1, d), made for (time, batch, d), is added to (batch, time, d): it counts samples.
Source: https://github.com/songyangco/GETNext/issues/2
Truth: permuting the time steps leaves the pooled output as it is (no position is known); the order task is not learned.
Could a tool know: partly: a buffer is broadcast along the sequence, and sliced by the batch's size.
"""
import math
import sys
import torch
from torch import nn

HEALTHY = "--healthy" in sys.argv
torch.manual_seed(0)
torch.set_num_threads(1)


class PositionalEncoding(nn.Module):
    def __init__(self, d, max_len=500):
        super().__init__()
        pos = torch.arange(max_len).unsqueeze(1)
        div = torch.exp(torch.arange(0, d, 2) * (-math.log(10000.0) / d))
        pe = torch.zeros(max_len, 1, d)
        pe[:, 0, 0::2], pe[:, 0, 1::2] = torch.sin(pos * div), torch.cos(pos * div)
        self.register_buffer("pe", pe)

    def forward(self, x):
        if HEALTHY:
            return x + self.pe[: x.size(1)].transpose(0, 1)
        return x + self.pe[: x.size(0)]


class Model(nn.Module):
    def __init__(self):
        super().__init__()
        self.emb, self.pos = nn.Embedding(20, 32), PositionalEncoding(32)
        layer = nn.TransformerEncoderLayer(32, 4, 64, dropout=0.0, batch_first=True)
        self.enc = nn.TransformerEncoder(layer, 2)
        self.out = nn.Linear(32, 2)

    def forward(self, ids):
        return self.out(self.enc(self.pos(self.emb(ids))).mean(1))


model = Model()
opt = torch.optim.Adam(model.parameters(), lr=2e-3)
for step in range(150):
    ids = torch.stack([torch.randperm(20)[:8] for _ in range(32)])
    y = (ids[:, 0] > ids[:, -1]).long()
    loss = nn.functional.cross_entropy(model(ids), y)
    opt.zero_grad()
    loss.backward()
    opt.step()
model.eval()
with torch.no_grad():
    d = (model(ids) - model(ids.flip(1))).abs().max()
print(f"loss {loss.item():.4f} change when time is reversed {d:.2e}")
