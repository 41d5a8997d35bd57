"""Benign: a CRF with forbidden transitions of -inf; torch.logsumexp takes them, each tag stays reachable.
Source: Own: constrained transitions of a CRF."""
import torch
from torch import nn

torch.manual_seed(0)
T = 4


class CRF(nn.Module):
    def __init__(self):
        super().__init__()
        self.emit = nn.Linear(6, T)
        self.trans = nn.Parameter(torch.randn(T, T) * 0.1)
        allowed = torch.ones(T, T, dtype=torch.bool)
        allowed[0, 2] = allowed[3, 1] = False
        self.register_buffer("allowed", allowed)

    def forward(self, x, tags):
        e = self.emit(x)
        trans = self.trans.masked_fill(~self.allowed, float("-inf"))
        alpha = e[:, 0]
        gold = e[:, 0].gather(1, tags[:, :1]).squeeze(1)
        for t in range(1, x.shape[1]):
            alpha = torch.logsumexp(alpha[:, :, None] + trans, 1) + e[:, t]
            gold = gold + e[:, t].gather(1, tags[:, t : t + 1]).squeeze(1) + trans[tags[:, t - 1], tags[:, t]]
        return (torch.logsumexp(alpha, 1) - gold).mean()


net = CRF()
opt = torch.optim.SGD(net.parameters(), lr=0.05)
for step in range(5):
    loss = net(torch.randn(3, 5, 6), torch.full((3, 5), 1).index_fill(1, torch.tensor([0]), 2))
    opt.zero_grad()
    loss.backward()
    opt.step()
    print(step, loss.item())
assert loss.isfinite() and net.trans.isfinite().all()
