"""checkpointing with dropout, reentrant and not
Source: pytorch docs checkpoint
"""
import torch
import torch.nn.functional as F
from torch import nn

import kit

torch.manual_seed(0)
from torch.utils.checkpoint import checkpoint


class N(nn.Module):
    def __init__(self):
        super().__init__()
        self.a, self.f, self.g, self.o = nn.Linear(6, 16), nn.Sequential(nn.Linear(16, 16), nn.GELU(), nn.Dropout(0.2)), nn.Sequential(nn.Linear(16, 16), nn.SiLU(), nn.Dropout(0.2)), nn.Linear(16, 4)

    def forward(self, x):
        x = self.a(x)
        x = checkpoint(self.f, x, use_reentrant=False)
        x = checkpoint(self.g, x, use_reentrant=True)
        return self.o(x)


model = N()
opt = torch.optim.AdamW(model.parameters(), 1e-2)

def loss_at(k):
    return F.cross_entropy(model(torch.randn(8, 6)), torch.randint(0, 4, (8,)))

for k in range(7):
    kit.now = k
    opt.zero_grad()
    loss = loss_at(k)
    loss.backward()
    opt.step()
    print(k, kit.bits(loss), kit.digest(model, opt))
