"""Translation transformer with an inverse-square-root schedule; after the warm-up the schedule counts from 0.
Source: CUNY-CL/yoyodyne#300 ("Avoids 0-to-a-negative exponent error"), facebookresearch/fairseq#1341."""
import sys, math
import numpy as np
import torch
from torch import nn

torch.set_num_threads(1)
torch.manual_seed(31)
CURED = "--cured" in sys.argv
np.seterr(all="ignore")
WARMUP = 6


def schedule(step):
    if step < WARMUP:
        return (step + 1) / WARMUP
    since = np.float64(step - WARMUP + (1 if CURED else 0))
    return since ** -0.5  # FAULT


class Seq2Seq(nn.Module):
    def __init__(self, vocab=40, d=32):
        super().__init__()
        self.src, self.tgt = nn.Embedding(vocab, d), nn.Embedding(vocab, d)
        self.core = nn.Transformer(d, 4, 1, 1, 64, dropout=0.0, batch_first=True)
        self.out = nn.Linear(d, vocab)
        self.out.weight = self.tgt.weight

    def forward(self, s, t):
        mask = nn.Transformer.generate_square_subsequent_mask(t.shape[1])
        return self.out(self.core(self.src(s), self.tgt(t), tgt_mask=mask))


model = Seq2Seq()
opt = torch.optim.Adam(model.parameters(), lr=1e-3, betas=(0.9, 0.98))
sched = torch.optim.lr_scheduler.LambdaLR(opt, schedule)
losses = []
for step in range(12):
    s = torch.randint(2, 40, (8, 10))
    t = torch.cat([torch.ones(8, 1, dtype=torch.long), s.flip(1)], 1)
    loss = nn.functional.cross_entropy(model(s, t[:, :-1]).flatten(0, 1), t[:, 1:].flatten())
    opt.zero_grad()
    loss.backward()
    opt.step()
    sched.step()
    losses.append(loss.item())
    print(step, losses[-1], sched.get_last_lr())
print("FINITE", all(map(math.isfinite, losses)) and all(bool(p.isfinite().all()) for p in model.parameters()))
