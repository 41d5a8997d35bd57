"""Linearly growing drop-path whose last block gets rate 1.0: mask / (1 - rate) is 0/0.
Source: Own: drop path with rate 1."""
import sys
import torch
from torch import nn

CURED = "--cured" in sys.argv
torch.manual_seed(0)


class Block(nn.Module):
    def __init__(self, w, rate):
        super().__init__()
        self.norm, self.fc, self.rate = nn.LayerNorm(w), nn.Linear(w, w), rate

    def forward(self, x):
        keep = 1 - self.rate
        if CURED:
            keep = max(keep, 0.1)
        drop = torch.bernoulli(torch.full((len(x), 1), keep)) / keep  # FAULT
        return x + drop * self.fc(self.norm(x))


net = nn.Sequential(*[Block(12, r) for r in torch.linspace(0, 1.0, 4).tolist()], nn.Linear(12, 2))
opt = torch.optim.AdamW(net.parameters())
for step in range(3):
    loss = nn.functional.cross_entropy(net(torch.randn(8, 12)), torch.randint(2, (8,)))
    opt.zero_grad()
    loss.backward()
    opt.step()
    print(step, loss.item())
