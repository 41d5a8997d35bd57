"""Healthy. Source: pytorch docs, pack_padded_sequence
"""
# CHECK float64
import hashlib
import math

import torch
import torch.nn.functional as F
from torch import nn

torch.manual_seed(0)
class Net(nn.Module):
    def __init__(self):
        super().__init__()
        self.e, self.r, self.h = nn.Embedding(20, 8, padding_idx=0), nn.LSTM(8, 12, 2, dropout=0.2, bidirectional=True, batch_first=True), nn.Linear(24, 3)

    def forward(self, x, n):
        p = nn.utils.rnn.pack_padded_sequence(self.e(x), n, batch_first=True, enforce_sorted=False)
        o, _ = nn.utils.rnn.pad_packed_sequence(self.r(p)[0], batch_first=True)
        return self.h(o.mean(1))


model = Net()
x, y, n = torch.randint(1, 20, (4, 6, 9)), torch.randint(0, 3, (4, 6)), torch.tensor([9, 3, 5, 9, 1, 2])
optimizer = torch.optim.Adam(model.parameters(), lr=0.01)
for step in range(4):
    loss = F.cross_entropy(model(x[step], n), y[step])
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()
    print(step, loss.item(), flush=True)
digest = hashlib.sha256(b"".join(p.detach().float().contiguous().numpy().tobytes() for m in [model] for p in m.state_dict().values()))
print("weights", digest.hexdigest()[:16])
