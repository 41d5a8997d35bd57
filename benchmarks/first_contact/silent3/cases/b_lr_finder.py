"""The rate of an LR finder is left on: it rises by 4 % a step without end, Adam on a small causal transformer.
Cure: it is capped at 3e-3."""
import sys
import torch
from torch import nn
from _lost import Lost

HEALTHY = "--healthy" in sys.argv
torch.manual_seed(0)
torch.set_num_threads(1)


class LM(nn.Module):
    def __init__(self):
        super().__init__()
        self.emb, self.pos = nn.Embedding(30, 48), nn.Parameter(torch.randn(16, 48) * 0.02)
        self.enc = nn.TransformerEncoder(nn.TransformerEncoderLayer(48, 4, 96, dropout=0.0, batch_first=True, norm_first=True), 2)
        self.out = nn.Linear(48, 30)

    def forward(self, ids):
        m = nn.Transformer.generate_square_subsequent_mask(ids.shape[1])
        return self.out(self.enc(self.emb(ids) + self.pos[: ids.shape[1]], mask=m, is_causal=True))


model, lost = LM(), Lost()
opt = torch.optim.Adam(model.parameters(), lr=1e-5)
nxt = torch.randperm(30)
for step in range(300):
    s = [torch.randint(0, 30, (16,))]
    for _ in range(16):
        s.append(torch.where(torch.rand(16) < 0.1, torch.randint(0, 30, (16,)), nxt[s[-1]]))
    s = torch.stack(s, 1)
    loss = nn.functional.cross_entropy(model(s[:, :-1]).flatten(0, 1), s[:, 1:].flatten())
    opt.zero_grad()
    loss.backward()
    opt.step()
    for g in opt.param_groups:
        g["lr"] = min(g["lr"] * 1.04, 3e-3 if HEALTHY else 1e9)
    if not lost(loss):
        break
lost.report()
