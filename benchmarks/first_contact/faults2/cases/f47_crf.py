"""kmkurn/pytorch-crf#1 (hand-written CRF): log(sum(exp(score))) instead of logsumexp, scores grow with the length
TRUTH op=aten.sum reason=overflow"""
import sys
import torch
from torch import nn
import torch.nn.functional as F
from _util import done
CURED = "--cured" in sys.argv
torch.manual_seed(0); torch.set_num_threads(1)

class CRF(nn.Module):
    def __init__(self, n):
        super().__init__(); self.T = nn.Parameter(torch.randn(n, n) * 0.1)
    def forward(self, em, y):
        a = em[:, 0]; gold = em[:, 0].gather(1, y[:, :1]).squeeze(1)
        for t in range(1, em.size(1)):
            s = a[:, :, None] + self.T + em[:, t, None, :]
            m = s.amax(1, keepdim=True).detach() if CURED else 0.0
            z = torch.exp(s - m)
            a = torch.log(z.sum(1)) + (m.squeeze(1) if CURED else 0.0)  # FAULT
            gold = gold + em[:, t].gather(1, y[:, t:t + 1]).squeeze(1) + self.T[y[:, t - 1], y[:, t]]
        return (torch.logsumexp(a, 1) - gold).mean()
class Tagger(nn.Module):
    def __init__(self):
        super().__init__(); self.e, self.l, self.o, self.crf = nn.Embedding(50, 16), nn.LSTM(16, 16, batch_first=True, bidirectional=True), nn.Linear(32, 5), CRF(5)
    def forward(self, x, y): return self.crf(self.o(self.l(self.e(x))[0]), y)
net = Tagger(); opt = torch.optim.SGD(net.parameters(), 0.05)
for step in range(4):
    n = 70 if step == 2 else 12; x, y = torch.randint(0, 50, (3, n)), torch.randint(0, 5, (3, n))
    loss = net(x, y); opt.zero_grad(); loss.backward(); opt.step(); print(step, loss.item())
done(loss.detach(), net)
