"""sparse embeddings with SparseAdam beside Adam
Source: pytorch docs SparseAdam
"""
import torch
import torch.nn.functional as F
from torch import nn

import kit

torch.manual_seed(0)
class N(nn.Module):
    def __init__(self):
        super().__init__()
        self.e, self.o = nn.EmbeddingBag(30, 8, sparse=True), nn.Linear(8, 4)

    def forward(self, x):
        return self.o(self.e(x))


model = N()
opt = torch.optim.Adam(model.o.parameters(), 1e-2)
sp = torch.optim.SparseAdam(model.e.parameters(), 1e-2)

for k in range(7):
    opt.zero_grad()
    sp.zero_grad()
    loss = F.cross_entropy(model(torch.randint(0, 30, (8, 5))), torch.randint(0, 4, (8,)))
    loss.backward()
    opt.step()
    sp.step()
    print(k, kit.bits(loss), kit.digest(model, opt))
