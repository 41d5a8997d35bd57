"""A checkpoint with the prefix model. is loaded with strict=False: nothing is loaded.

Source: https://github.com/pytorch/examples/issues/1029
Truth: the loss of the first fine-tuning step: low in the twin, that of a new model here
Could a tool know: yes: load_state_dict matched none of the keys
"""
import sys

import torch
import torch.nn.functional as F
from torch import nn

torch.set_num_threads(1)
torch.manual_seed(0)
HEALTHY = "--healthy" in sys.argv

centers = torch.randn(8, 20)


def batch(n=64):
    y = torch.randint(0, 8, (n,))
    return centers[y] + 0.5 * torch.randn(n, 20), y


def net():
    return nn.Sequential(nn.Linear(20, 64), nn.ReLU(), nn.Linear(64, 64), nn.ReLU(), nn.Linear(64, 8))


def train(model, steps, lr):
    optimizer = torch.optim.AdamW(model.parameters(), lr=lr)
    for step in range(steps):
        x, y = batch()
        loss = F.cross_entropy(model(x), y)
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        if step % 50 == 0:
            print(step, round(loss.item(), 4))


class Lit(nn.Module):
    def __init__(self):
        super().__init__()
        self.model = net()

    def forward(self, x):
        return self.model(x)


lit = Lit()
train(lit, 150, 1e-3)
state = lit.state_dict()
if HEALTHY:
    state = {k.removeprefix("model."): v for k, v in state.items()}
fine = net()
fine.load_state_dict(state, strict=False)
x, y = batch(256)
print("end: loss before fine-tuning", round(F.cross_entropy(fine(x), y).item(), 4))
train(fine, 150, 1e-4)
