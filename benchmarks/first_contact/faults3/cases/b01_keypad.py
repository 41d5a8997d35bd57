"""BERT-like encoder with float -inf padding masks; every sentence keeps at least one word.
Source: pytorch docs of nn.MultiheadAttention (key_padding_mask is -inf inside), huggingface BERT extended masks."""
import math, torch
from torch import nn
import torch.nn.functional as F
torch.set_num_threads(1)
torch.manual_seed(1)


class Encoder(nn.Module):
    def __init__(self, vocab=40, d=32):
        super().__init__()
        self.emb = nn.Embedding(vocab, d, padding_idx=0)
        self.layers = nn.ModuleList(nn.TransformerEncoderLayer(d, 4, 64, dropout=0.0, batch_first=True) for _ in range(2))
        self.out = nn.Linear(d, 2)

    def forward(self, ids):
        pad = torch.zeros(ids.shape).masked_fill(ids == 0, float("-inf"))
        x = self.emb(ids)
        for layer in self.layers:
            x = layer(x, src_key_padding_mask=pad)
        x = x.masked_fill((ids == 0)[..., None], float("-inf")).amax(1)  # max over words
        return self.out(x)


model = Encoder()
opt = torch.optim.Adam(model.parameters(), lr=1e-3)
losses = []
for step in range(70):
    ids = torch.randint(1, 40, (16, 10))
    n = torch.randint(1, 11, (16,))
    ids[torch.arange(10) >= n[:, None]] = 0
    loss = F.cross_entropy(model(ids), (ids >= 34).any(1).long())
    opt.zero_grad()
    loss.backward()
    opt.step()
    losses.append(loss.item())
print(losses[0], losses[-1], "FINITE", all(map(math.isfinite, losses)) and all(bool(p.isfinite().all()) for p in model.parameters()))
