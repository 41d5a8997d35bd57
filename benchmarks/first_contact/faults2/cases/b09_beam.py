"""beam search / Viterbi with -inf scores and minus-infinity initial states, CRF with forbidden transitions -inf in logsumexp (no full row)"""
import sys
import torch
from torch import nn
import torch.nn.functional as F
from _util import done
torch.manual_seed(0); torch.set_num_threads(1)

T = torch.zeros(4, 4); T[0, 2] = T[2, 0] = float("-inf")
class CRF(nn.Module):
    def __init__(self):
        super().__init__(); self.t = nn.Parameter(torch.randn(4, 4) * .1); self.register_buffer("ban", T)
    def forward(self, em, y):
        tr = self.t + self.ban; a = em[:, 0]; g = em[:, 0].gather(1, y[:, :1]).squeeze(1)
        for i in range(1, em.size(1)):
            a = torch.logsumexp(a[:, :, None] + tr, 1) + em[:, i]; g = g + tr[y[:, i - 1], y[:, i]] + em[:, i].gather(1, y[:, i:i + 1]).squeeze(1)
        return (torch.logsumexp(a, 1) - g).mean()
    @torch.no_grad()
    def decode(self, em):
        a = torch.full((len(em), 4), float("-inf")); a[:, 0] = em[:, 0, 0]
        for i in range(1, em.size(1)): a = (a[:, :, None] + self.t + self.ban).amax(1) + em[:, i]
        return a.argmax(1)
l, c = nn.Linear(6, 4), CRF(); opt = torch.optim.Adam([*l.parameters(), *c.parameters()], 1e-2)
for step in range(25):
    x = torch.randn(3, 7, 6); y = torch.ones(3, 7, dtype=torch.long); loss = c(l(x), y); opt.zero_grad(); loss.backward(); opt.step(); c.decode(l(x))
print(loss.item()); done(loss.detach(), l, c)
