"""torch.compile with inductor: an own attention whose mask leaves nothing to see for one sequence.
Source: pytorch/pytorch#103749, #41508, here compiled."""
import sys
import torch
from torch import nn

CURED = "--cured" in sys.argv
torch.manual_seed(0)


class Pool(nn.Module):
    def __init__(self):
        super().__init__()
        self.embed, self.score, self.out = nn.Embedding(20, 8), nn.Linear(8, 1), nn.Linear(8, 3)

    def forward(self, ids):
        x = self.embed(ids)
        s = self.score(x).squeeze(-1)
        s = s.masked_fill(ids == 0, -1e9 if CURED else float("-inf"))
        w = torch.softmax(s, -1)  # FAULT
        return self.out((w[..., None] * x).sum(1))


net = Pool()
fast = torch.compile(net)
opt = torch.optim.Adam(net.parameters(), lr=1e-3)
for step in range(4):
    ids = torch.randint(1, 20, (4, 5))
    if step == 2:
        ids[3] = 0
    loss = nn.functional.cross_entropy(fast(ids), torch.randint(3, (4,)))
    opt.zero_grad()
    loss.backward()
    opt.step()
    print(step, loss.item())
