"""nn.TransformerEncoder clones its layer: all layers begin with the same weights.

Source: https://github.com/pytorch/pytorch/issues/86274
Truth: equality of the layers' weights before training
Could a tool know: yes: several modules of one class with bit-identical random weights
"""
import sys

import torch
import torch.nn.functional as F
from torch import nn

torch.set_num_threads(1)
torch.manual_seed(0)
HEALTHY = "--healthy" in sys.argv


class Model(nn.Module):
    def __init__(self):
        super().__init__()
        self.embed = nn.Embedding(30, 32)
        layer = nn.TransformerEncoderLayer(32, 4, 64, dropout=0.0, batch_first=True)
        self.encoder = nn.TransformerEncoder(layer, 4, enable_nested_tensor=False)
        if HEALTHY:
            for p in self.encoder.parameters():
                if p.dim() > 1:
                    nn.init.xavier_uniform_(p)
        self.head = nn.Linear(32, 30)

    def forward(self, t):
        return self.head(self.encoder(self.embed(t)))


model = Model()
same = torch.equal(model.encoder.layers[0].linear1.weight, model.encoder.layers[3].linear1.weight)
optimizer = torch.optim.AdamW(model.parameters(), lr=1e-3)
for step in range(200):
    tokens = torch.randint(1, 30, (16, 16))
    hidden = tokens.masked_fill(torch.rand(16, 16) < 0.15, 0)
    target = tokens.masked_fill(hidden != 0, -100)
    loss = F.cross_entropy(model(hidden).flatten(0, 1), target.flatten())
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()
    if step % 50 == 0:
        print(step, round(loss.item(), 4))
print("end: layers began equal", same)
