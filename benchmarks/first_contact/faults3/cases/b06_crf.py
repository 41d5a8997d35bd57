"""BiLSTM-CRF: the forward algorithm runs in log space, forbidden transitions and starts are -inf.
Source: pytorch tutorial advanced_tutorial (-10000.), kmkurn/pytorch-crf, jidasheng/bi-lstm-crf (IMPOSSIBLE)."""
import math, torch
from torch import nn
torch.set_num_threads(1)
torch.manual_seed(6)
TAGS = 4


class CRF(nn.Module):
    def __init__(self):
        super().__init__()
        self.trans = nn.Parameter(torch.randn(TAGS, TAGS) * 0.1)
        forbid = torch.zeros(TAGS, TAGS, dtype=torch.bool)
        forbid[0, 2] = True  # O -> I
        self.register_buffer("forbid", forbid)

    def forward(self, emit, tags):
        trans = self.trans.masked_fill(self.forbid, float("-inf"))
        alpha = torch.full((len(emit), TAGS), float("-inf"))
        alpha[:, :2] = 0.0
        alpha = alpha + emit[:, 0]
        score = emit[:, 0].gather(1, tags[:, :1]).squeeze(1)
        for t in range(1, emit.shape[1]):
            alpha = torch.logsumexp(alpha[:, :, None] + trans, 1) + emit[:, t]
            score = score + self.trans[tags[:, t - 1], tags[:, t]] + emit[:, t].gather(1, tags[:, t:t + 1]).squeeze(1)
        return (torch.logsumexp(alpha, 1) - score).mean()


emb, rnn, out, crf = nn.Embedding(30, 16), nn.LSTM(16, 12, batch_first=True, bidirectional=True), nn.Linear(24, TAGS), CRF()
params = [p for m in (emb, rnn, out, crf) for p in m.parameters()]
opt = torch.optim.Adam(params, lr=1e-2)
losses = []
for step in range(30):
    ids = torch.randint(0, 30, (12, 9))
    tags = torch.where(ids % 2 == 0, 0, 1)
    loss = crf(out(rnn(emb(ids))[0]), tags)
    opt.zero_grad()
    loss.backward()
    opt.step()
    losses.append(loss.item())
print(losses[0], losses[-1], "FINITE", all(map(math.isfinite, losses)) and all(bool(p.isfinite().all()) for p in params))
