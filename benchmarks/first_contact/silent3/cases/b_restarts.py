"""Warm restarts, each with five times the rate of the one before, on an LSTM with SGD. Cure: each with 0.7 times."""
import sys
import torch
from torch import nn
from _lost import Lost

HEALTHY = "--healthy" in sys.argv
torch.manual_seed(0)
torch.set_num_threads(1)


class Tagger(nn.Module):
    def __init__(self):
        super().__init__()
        self.emb, self.lstm, self.out = nn.Embedding(20, 24), nn.LSTM(24, 32, 2, batch_first=True), nn.Linear(32, 20)

    def forward(self, x):
        return self.out(self.lstm(self.emb(x))[0])


model = Tagger()
opt = torch.optim.SGD(model.parameters(), lr=0.5, momentum=0.9)
lost = Lost()
for step in range(360):
    c, t = divmod(step, 60)
    opt.param_groups[0]["lr"] = 0.5 * (0.7 if HEALTHY else 5.0) ** c * (1 - t / 65)
    x = torch.randint(0, 20, (16, 10))
    y = x.roll(1, 1)
    y[:, 0] = 0
    loss = nn.functional.cross_entropy(model(x).flatten(0, 1), y.flatten())
    opt.zero_grad()
    loss.backward()
    opt.step()
    if not lost(loss):
        break
lost.report()
