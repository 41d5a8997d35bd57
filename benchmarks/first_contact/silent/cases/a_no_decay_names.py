"""n not in no_decay compares whole names: norms and biases get weight decay too, the second group is empty.

Source: https://github.com/namisan/mt-dnn/pull/37
Truth: the group without decay has 0 parameters
Could a tool know: partly: an empty parameter group; norms' weights in a group with decay
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
        self.emb = nn.Embedding(50, 32)
        self.layers = nn.ModuleList(nn.TransformerEncoderLayer(32, 4, 64, batch_first=True) for _ in range(2))
        self.head = nn.Linear(32, 2)

    def forward(self, t):
        x = self.emb(t)
        for layer in self.layers:
            x = layer(x)
        return self.head(x.mean(1))


model = Net()
no_decay = ["bias", "norm1.weight", "norm2.weight"]
named = list(model.named_parameters())
skip = (lambda n: any(part in n for part in no_decay)) if HEALTHY else (lambda n: n in no_decay)
groups = [
    {"params": [p for n, p in named if not skip(n)], "weight_decay": 0.3},
    {"params": [p for n, p in named if skip(n)], "weight_decay": 0.0},
]
optimizer = torch.optim.AdamW(groups, lr=1e-3)
for step in range(200):
    t = torch.randint(0, 50, (16, 10))
    loss = F.cross_entropy(model(t), ((t < 10).sum(1) > 1).long())
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()
    if step % 50 == 0:
        print(step, round(loss.item(), 4))
print("end: parameters without decay", len(groups[1]["params"]))
