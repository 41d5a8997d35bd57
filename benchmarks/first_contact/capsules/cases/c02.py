"""tied weights
Source: pytorch/examples word_language_model --tied
"""
import torch
import torch.nn.functional as F
from torch import nn

import kit

torch.manual_seed(0)
class LM(nn.Module):
    def __init__(self):
        super().__init__()
        self.e, self.m, self.o = nn.Embedding(20, 8), nn.Linear(8, 8), nn.Linear(8, 20, bias=False)
        self.o.weight = self.e.weight

    def forward(self, x):
        return self.o(torch.tanh(self.m(self.e(x))))


model = LM()
opt = torch.optim.Adam(model.parameters(), 1e-2)


def loss_at(k):
    x = torch.randint(0, 20, (4, 9))
    return F.cross_entropy(model(x[:, :-1]).flatten(0, 1), x[:, 1:].flatten())

for k in range(7):
    kit.now = k
    opt.zero_grad()
    loss = loss_at(k)
    loss.backward()
    opt.step()
    print(k, kit.bits(loss), kit.digest(model, opt))
