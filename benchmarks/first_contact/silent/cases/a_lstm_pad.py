"""The LSTM's last output is taken at the end of the padding, not at the sequence's end.

Source: https://github.com/keitakurita/practical-torchtext/issues/5 (and ray-project/ray#21392)
Truth: index arithmetic: for most rows position -1 is padding
Could a tool know: no: which tokens are padding is not known
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
        self.emb, self.rnn, self.out = nn.Embedding(20, 16), nn.LSTM(16, 32, batch_first=True), nn.Linear(32, 19)

    def forward(self, t, length):
        h, _ = self.rnn(self.emb(t))
        return self.out(h[torch.arange(len(t)), length - 1] if HEALTHY else h[:, -1])


model = Net()
optimizer = torch.optim.Adam(model.parameters(), lr=5e-3)
losses = []
for step in range(250):
    length = torch.randint(2, 21, (32,))
    t = torch.randint(1, 20, (32, 20)).masked_fill(torch.arange(20) >= length[:, None], 0)
    y = t[torch.arange(32), length - 1] - 1
    loss = F.cross_entropy(model(t, length), y)
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()
    losses.append(loss.item())
    if step % 50 == 0:
        print(step, round(loss.item(), 4))
print("end: mean of last 20 losses", round(sum(losses[-20:]) / 20, 4))
