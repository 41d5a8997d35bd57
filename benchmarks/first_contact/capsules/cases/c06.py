"""a transformer with dropout
Source: pytorch nn.TransformerEncoder tutorial
"""
import torch
import torch.nn.functional as F
from torch import nn

import kit

torch.manual_seed(0)
class T(nn.Module):
    def __init__(self):
        super().__init__()
        self.e = nn.Embedding(20, 16)
        self.t = nn.TransformerEncoder(nn.TransformerEncoderLayer(16, 2, 32, 0.2, batch_first=True), 2)
        self.o = nn.Linear(16, 20)

    def forward(self, x):
        m = nn.Transformer.generate_square_subsequent_mask(x.shape[1])
        return self.o(self.t(self.e(x), mask=m, is_causal=True))


model = T()
opt = torch.optim.AdamW(model.parameters(), 1e-3)


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
