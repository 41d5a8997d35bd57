"""Healthy. Source: pytorch docs, torch.utils.checkpoint
"""
# CHECK float64
import hashlib
import math

import torch
import torch.nn.functional as F
from torch import nn

torch.manual_seed(0)
from torch.utils.checkpoint import checkpoint


class Net(nn.Module):
    def __init__(self):
        super().__init__()
        self.layers = nn.ModuleList(nn.TransformerEncoderLayer(16, 2, 32, dropout=0.1, batch_first=True) for _ in range(3))
        self.head = nn.Linear(16, 2)

    def forward(self, x):
        for i, layer in enumerate(self.layers):
            x = checkpoint(layer, x, use_reentrant=i == 1)
        return self.head(x)


model = Net()
x, y = torch.randn(4, 3, 8, 16), torch.randn(4, 3, 8, 2)
optimizer = torch.optim.AdamW(model.parameters(), lr=0.001)
for step in range(4):
    loss = F.mse_loss(model(x[step].requires_grad_()), y[step])
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()
    print(step, loss.item(), flush=True)
digest = hashlib.sha256(b"".join(p.detach().float().contiguous().numpy().tobytes() for m in [model] for p in m.state_dict().values()))
print("weights", digest.hexdigest()[:16])
