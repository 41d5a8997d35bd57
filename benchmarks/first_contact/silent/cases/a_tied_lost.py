"""The vocabulary is enlarged by new embedding and head modules, and the two are no longer tied.

Source: https://github.com/NVIDIA-NeMo/Automodel/issues/2571
Truth: emb.weight is not head.weight
Could a tool know: partly: weights that were tied before training are not, where the model's config or history says so
"""
import sys

import torch
import torch.nn.functional as F
from torch import nn

torch.set_num_threads(1)
torch.manual_seed(0)
HEALTHY = "--healthy" in sys.argv


class LM(nn.Module):
    def __init__(self, vocab=30, d=32):
        super().__init__()
        self.emb, self.rnn, self.head = nn.Embedding(vocab, d), nn.GRU(d, d, batch_first=True), nn.Linear(d, vocab, bias=False)
        self.tie()

    def tie(self):
        self.head.weight = self.emb.weight

    def forward(self, t):
        return self.head(self.rnn(self.emb(t))[0])

    def resize(self, n):
        old = self.emb.weight.data
        self.emb, self.head = nn.Embedding(n, old.shape[1]), nn.Linear(old.shape[1], n, bias=False)
        self.emb.weight.data[: len(old)] = old
        self.head.weight.data[: len(old)] = old
        if HEALTHY:
            self.tie()


def train(model, vocab, steps):
    optimizer = torch.optim.AdamW(model.parameters(), lr=3e-3)
    for step in range(steps):
        text = (torch.randint(0, vocab, (16, 1)) + torch.arange(13)) % vocab
        loss = F.cross_entropy(model(text[:, :-1]).flatten(0, 1), text[:, 1:].flatten())
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        if step % 50 == 0:
            print(step, round(loss.item(), 4))


model = LM()
train(model, 30, 100)
model.resize(36)
train(model, 36, 150)
print("end: tied", model.head.weight is model.emb.weight)
