"""Attention's softmax runs over dimension 0 (batch x query), not over the context.

Source: https://github.com/PetrochukM/PyTorch-NLP/issues/2
Truth: the weights of one query do not sum to 1
Could a tool know: partly: nn.Softmax(dim=0) on a batch: the outputs of samples depend on each other
"""
import sys

import torch
import torch.nn.functional as F
from torch import nn

torch.set_num_threads(1)
torch.manual_seed(0)
HEALTHY = "--healthy" in sys.argv


class Attention(nn.Module):
    def __init__(self, d):
        super().__init__()
        self.q, self.out = nn.Linear(d, d, bias=False), nn.Linear(2 * d, d)
        self.softmax = nn.Softmax(dim=-1 if HEALTHY else 0)

    def forward(self, query, context):
        b, n, d = query.shape
        score = torch.bmm(self.q(query), context.transpose(1, 2)).view(b * n, -1)
        self.weights = self.softmax(score).view(b, n, -1)
        return torch.tanh(self.out(torch.cat([torch.bmm(self.weights, context), query], 2)))


class Net(nn.Module):
    def __init__(self):
        super().__init__()
        self.emb, self.rnn = nn.Embedding(20, 24), nn.GRU(24, 24, batch_first=True)
        self.att, self.head = Attention(24), nn.Linear(24, 20)

    def forward(self, t):
        context, _ = self.rnn(self.emb(t))
        return self.head(self.att(context[:, -1:], context)[:, 0])


model = Net()
optimizer = torch.optim.Adam(model.parameters(), lr=3e-3)
for step in range(250):
    t = torch.randint(0, 20, (32, 10))
    loss = F.cross_entropy(model(t), t[:, 2])
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()
    if step % 50 == 0:
        print(step, round(loss.item(), 4))
print("end: sum of a query's weights", round(model.att.weights.sum(-1).mean().item(), 4))
