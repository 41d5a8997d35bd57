"""nn.RNN with ReLU, a recurrent matrix of norm 3, and a long sequence.
Source: Pascanu et al. 2013 (exploding recurrences)."""
import sys
import torch
from torch import nn

CURED = "--cured" in sys.argv
torch.manual_seed(0)


class CharRNN(nn.Module):
    def __init__(self):
        super().__init__()
        self.embed = nn.Embedding(20, 8)
        self.rnn = nn.RNN(8, 16, nonlinearity="tanh" if CURED else "relu", batch_first=True)
        self.out = nn.Linear(16, 20)

    def forward(self, ids):
        h, _ = self.rnn(self.embed(ids))  # FAULT
        return self.out(h)


net = CharRNN()
net.rnn.weight_hh_l0.data = torch.eye(16) * 3.0
opt = torch.optim.SGD(net.parameters(), lr=1e-30)
for step, length in enumerate([10, 20, 100, 10]):
    ids = torch.randint(20, (2, length))
    loss = nn.functional.cross_entropy(net(ids).flatten(0, 1), ids.flatten())
    opt.zero_grad()
    loss.backward()
    opt.step()
    print(step, loss.item())
