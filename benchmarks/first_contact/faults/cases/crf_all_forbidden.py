"""A linear-chain CRF's forward algorithm with its own logsumexp: all transitions into a tag are forbidden (-inf).
Source: kmkurn/pytorch-crf#1 (nan in forward), allenai/allennlp#890 (log of an all-zero mask)."""
import sys
import torch
from torch import nn

CURED = "--cured" in sys.argv
torch.manual_seed(0)
TAGS = 4


def log_sum_exp(x, dim):
    top = x.max(dim, keepdim=True).values
    if CURED:
        top = top.clamp(min=-1e4)
        return (top + torch.log(torch.exp(x - top).sum(dim, keepdim=True) + 1e-30)).squeeze(dim)
    return (top + torch.log(torch.exp(x - top).sum(dim, keepdim=True))).squeeze(dim)  # FAULT


class Tagger(nn.Module):
    def __init__(self):
        super().__init__()
        self.lstm = nn.LSTM(6, 8, bidirectional=True, batch_first=True)
        self.out = nn.Linear(16, TAGS)
        self.trans = nn.Parameter(torch.randn(TAGS, TAGS))

    def forward(self, x, tags, allowed):
        emit = self.out(self.lstm(x)[0])
        trans = self.trans.masked_fill(~allowed, float("-inf"))
        alpha = emit[:, 0]
        gold = emit[:, 0].gather(1, tags[:, :1]).squeeze(1)
        for t in range(1, x.shape[1]):
            alpha = log_sum_exp(alpha[:, :, None] + trans, 1) + emit[:, t]
            gold = gold + emit[:, t].gather(1, tags[:, t : t + 1]).squeeze(1) + self.trans[tags[:, t - 1], tags[:, t]]
        return (torch.logsumexp(alpha, 1) - gold).mean()


net = Tagger()
opt = torch.optim.SGD(net.parameters(), lr=0.05, momentum=0.9)
for step in range(4):
    allowed = torch.ones(TAGS, TAGS, dtype=torch.bool)
    allowed[2, 1] = False
    if step == 2:
        allowed[:, 3] = False
    loss = net(torch.randn(3, 5, 6), torch.randint(0, 3, (3, 5)), allowed)
    opt.zero_grad()
    loss.backward()
    opt.step()
    print(step, loss.item())
