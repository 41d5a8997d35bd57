"""healthy: LSTM with clipping
Source: pytorch/examples word_language_model
"""
import torch
import torch.nn.functional as F
from torch import nn

import kit

torch.manual_seed(0)
class LM(nn.Module):
    def __init__(self):
        super().__init__()
        self.e, self.r, self.o = nn.Embedding(20, 8), nn.LSTM(8, 12, 2, dropout=0.1, batch_first=True), nn.Linear(12, 20)

    def forward(self, x):
        return self.o(self.r(self.e(x))[0])


model = LM()
opt = torch.optim.SGD(model.parameters(), 0.5)


def loss_at(k):
    x = torch.randint(0, 20, (4, 9))
    return F.cross_entropy(model(x[:, :-1]).flatten(0, 1), x[:, 1:].flatten())

for k in range(8):
    kit.now = k
    opt.zero_grad()
    loss = loss_at(k)
    loss.backward()
    nn.utils.clip_grad_norm_(model.parameters(), 0.25)
    opt.step()
    print(k, kit.bits(loss), kit.digest(model, opt))
