"""Class-balanced loss: the classes seen so far are counted in a uint8 buffer, which wraps to 0 at 256.
Source: invented after class-balanced weights 1 / count (Y. Cui et al., arXiv 1901.05555) and NumPy/torch integer wrap-around."""
import sys, math
import torch
from torch import nn
import torch.nn.functional as F

torch.set_num_threads(1)
torch.manual_seed(62)
CURED = "--cured" in sys.argv


class BalancedLoss(nn.Module):
    def __init__(self, classes):
        super().__init__()
        self.register_buffer("seen", torch.ones(classes, dtype=torch.int64 if CURED else torch.uint8))

    def forward(self, logits, y):
        self.seen += F.one_hot(y, len(self.seen)).sum(0).to(self.seen.dtype)
        weight = 1.0 / self.seen.float()  # FAULT
        weight = weight / weight.sum() * len(weight)
        return F.cross_entropy(logits, y, weight=weight)


class Net(nn.Module):
    def __init__(self, classes=3):
        super().__init__()
        self.emb = nn.Embedding(30, 16)
        self.rnn = nn.RNN(16, 24, batch_first=True)
        self.out = nn.Linear(24, classes)

    def forward(self, ids):
        return self.out(self.rnn(self.emb(ids))[1][0])


net, criterion = Net(), BalancedLoss(3)
opt = torch.optim.Adagrad(net.parameters(), lr=0.02)
losses = []
for step in range(24):
    ids = torch.randint(0, 30, (24, 9))
    y = torch.cat([torch.zeros(15, dtype=torch.long), torch.ones(6, dtype=torch.long), torch.full((3,), 2)])
    ids[:, 0] = y
    loss = criterion(net(ids), y)
    opt.zero_grad()
    loss.backward()
    opt.step()
    losses.append(loss.item())
print(losses)
print("FINITE", all(map(math.isfinite, losses)) and all(bool(p.isfinite().all()) for p in net.parameters()))
