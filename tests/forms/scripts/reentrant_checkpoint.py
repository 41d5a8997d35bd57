"""Activation checkpointing in its older form, whose backward calls backward."""

import torch
from torch import nn
from torch.utils.checkpoint import checkpoint


class Block(nn.Module):
    def __init__(self):
        super().__init__()
        self.fc = nn.Linear(8, 8)

    def forward(self, x, bad):
        h = self.fc(x)
        if bad:
            h = h * 0
            h = torch.sqrt(h * h)  # FAULT
        return x + h


torch.manual_seed(0)
head, blocks = nn.Linear(8, 1), nn.ModuleList(Block() for _ in range(2))
model = nn.ModuleList([blocks, head])
optimizer = torch.optim.SGD(model.parameters(), 0.01)


class Net(nn.Module):
    def __init__(self):
        super().__init__()
        self.blocks, self.head = blocks, head

    def forward(self, x, bad):
        for block in self.blocks:
            x = checkpoint(block, x, bad, use_reentrant=True)
        return self.head(x)


net = Net()
for step in range(6):
    loss = net(torch.randn(4, 8, requires_grad=True), step == 4).square().mean()
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()
