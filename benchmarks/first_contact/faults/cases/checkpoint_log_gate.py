"""A checkpointed block (use_reentrant=False) with log(1 - gate): a gate that saturates.
Source: Own: log forget gates under checkpointing."""
import sys
import torch
from torch import nn
from torch.utils.checkpoint import checkpoint

CURED = "--cured" in sys.argv
torch.manual_seed(0)


class Gated(nn.Module):
    def __init__(self, w):
        super().__init__()
        self.gate, self.value = nn.Linear(w, w), nn.Linear(w, w)

    def forward(self, x):
        z = self.gate(x)
        keep = nn.functional.logsigmoid(-z) if CURED else torch.log(1 - torch.sigmoid(z))  # FAULT
        decay = torch.cumsum(keep.clamp(min=-1e4) if CURED else keep, 1)
        return x + (decay.exp() * self.value(x)) + 1e-3 * decay


class Stack(nn.Module):
    def __init__(self):
        super().__init__()
        self.blocks = nn.ModuleList(Gated(8) for _ in range(3))
        self.out = nn.Linear(8, 2)

    def forward(self, x):
        for b in self.blocks:
            x = checkpoint(b, x, use_reentrant=False)
        return self.out(x.mean(1))


net = Stack()
opt = torch.optim.AdamW(net.parameters(), lr=1e-3)
for step in range(4):
    if step == 2:
        net.blocks[1].gate.bias.data[3] = 60.0
    loss = nn.functional.cross_entropy(net(torch.randn(4, 6, 8)), torch.randint(2, (4,)))
    opt.zero_grad()
    loss.backward()
    opt.step()
    print(step, loss.item())
