"""Truncated backpropagation: an LSTM on a text, the hidden state is carried and detached, Adam with clipping, 500 steps.

Healthy: the loss falls
"""
import math
import random

import torch
import torch.nn.functional as F
from torch import nn

torch.set_num_threads(1)
torch.manual_seed(0)
random.seed(0)

TEXT = (__doc__ + "the quick brown fox jumps over the lazy dog. pack my box with five dozen liquor jugs. ") * 12
chars = sorted(set(TEXT))
data = torch.tensor([chars.index(c) for c in TEXT])
data = data[: len(data) // 8 * 8].view(8, -1)


class Net(nn.Module):
    def __init__(self, n):
        super().__init__()
        self.emb, self.rnn, self.out = nn.Embedding(n, 24), nn.LSTM(24, 48, batch_first=True), nn.Linear(48, n)

    def forward(self, t, state):
        h, state = self.rnn(self.emb(t), state)
        return self.out(h), state


model = Net(len(chars))
optimizer = torch.optim.Adam(model.parameters(), lr=3e-3)
state, at = None, 0
for step in range(500):
    if at + 17 > data.shape[1]:
        state, at = None, 0
    x, y = data[:, at : at + 16], data[:, at + 1 : at + 17]
    at += 16
    out, state = model(x, state)
    state = tuple(s.detach() for s in state)
    loss = F.cross_entropy(out.flatten(0, 1), y.flatten())
    optimizer.zero_grad()
    loss.backward()
    nn.utils.clip_grad_norm_(model.parameters(), 1.0)
    optimizer.step()
print("end:", loss.item())
