"""Hidden layers are kept in a Python list, not a ModuleList: the optimizer never sees them.

Source: https://github.com/meta-pytorch/torchfix/issues/31
Truth: the hidden layers are bit for bit as at the start
Could a tool know: yes: leaf tensors that get gradients and are in no module and no optimizer
"""
import sys

import torch
import torch.nn.functional as F
from torch import nn

torch.set_num_threads(1)
torch.manual_seed(0)
HEALTHY = "--healthy" in sys.argv

centers = torch.randn(10, 20)


def batch(n=64):
    y = torch.randint(0, 10, (n,))
    return centers[y] + torch.randn(n, 20), y



class FeedForward(nn.Module):
    def __init__(self, width=32, depth=3):
        super().__init__()
        hidden = [nn.Linear(20 if i == 0 else width, width) for i in range(depth)]
        self.hidden = nn.ModuleList(hidden) if HEALTHY else hidden
        self.out = nn.Linear(width, 10)

    def forward(self, x):
        for layer in self.hidden:
            x = F.relu(layer(x))
        return self.out(x)


model = FeedForward()
before = model.hidden[1].weight.detach().clone()
optimizer = torch.optim.AdamW(model.parameters(), lr=2e-3)
for step in range(250):
    x, y = batch()
    loss = F.cross_entropy(model(x), y)
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()
    if step % 50 == 0:
        print(step, round(loss.item(), 4))
print("end: hidden layer unchanged", torch.equal(before, model.hidden[1].weight))
