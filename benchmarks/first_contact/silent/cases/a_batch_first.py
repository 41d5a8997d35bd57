"""nn.TransformerEncoderLayer without batch_first gets (batch, sequence, features): it attends across the batch.

Source: https://github.com/DaoyuanLi2816/Molecule-Generator/pull/22
Truth: a sequence's output changes when another sequence of its batch is changed
Could a tool know: partly: gradients flow between samples; shapes alone do not say it
"""
import sys

import torch
import torch.nn.functional as F
from torch import nn

torch.set_num_threads(1)
torch.manual_seed(0)
HEALTHY = "--healthy" in sys.argv


class Net(nn.Module):
    def __init__(self):
        super().__init__()
        self.emb = nn.Embedding(30, 32)
        layer = nn.TransformerEncoderLayer(32, 4, 64, dropout=0.0, batch_first=HEALTHY)
        self.enc = nn.TransformerEncoder(layer, 2, enable_nested_tensor=False)
        for p in self.enc.parameters():
            if p.dim() > 1:
                nn.init.xavier_uniform_(p)
        self.head = nn.Linear(32, 30)

    def forward(self, t):
        return self.head(self.enc(self.emb(t)))


model = Net()
optimizer = torch.optim.AdamW(model.parameters(), lr=1e-3)
for step in range(200):
    t = torch.randint(0, 30, (20, 8))
    target = (t + t.sum(1, keepdim=True)) % 30
    loss = F.cross_entropy(model(t).flatten(0, 1), target.flatten())
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()
    if step % 50 == 0:
        print(step, round(loss.item(), 4))
with torch.no_grad():
    other = t.clone()
    other[1] = 0
    print("end: sample 0 moves with sample 1 by", round((model(t)[0] - model(other)[0]).abs().max().item(), 4))
