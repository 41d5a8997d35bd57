"""a stateful LSTM whose hidden state is carried over
Source: pytorch/examples word_language_model
"""
import torch
import torch.nn.functional as F
from torch import nn

import kit

torch.manual_seed(0)
class R(nn.Module):
    def __init__(self):
        super().__init__()
        self.r, self.o, self.h = nn.LSTM(6, 8, 2, dropout=0.2), nn.Linear(8, 4), None

    def forward(self, x):
        y, h = self.r(x, self.h)
        self.h = tuple(t.detach() for t in h)
        return self.o(y[-1])


model = R()
opt = torch.optim.Adagrad(model.parameters(), 1e-2)


def loss_at(k):
    return F.cross_entropy(model(torch.randn(5, 8, 6)), torch.randint(0, 4, (8,)))

for k in range(7):
    kit.now = k
    opt.zero_grad()
    loss = loss_at(k)
    loss.backward()
    opt.step()
    print(k, kit.bits(loss), kit.digest(model, opt))
