"""ignore_index is defined and not passed on: padding (most of the sequence) is part of the text loss.
Source: https://github.com/lucidrains/DALLE-pytorch/issues/57
Truth: targets hold 60 % padding tokens that count.
Could a tool know: no (partly: one class makes up most targets, and equals the embedding's padding_idx).
"""
import sys
import torch
from torch import nn

HEALTHY = "--healthy" in sys.argv
torch.manual_seed(0)
torch.set_num_threads(1)


class LM(nn.Module):
    def __init__(self, ignore_index=0):
        super().__init__()
        self.ignore_index = ignore_index
        self.emb, self.rnn, self.out = nn.Embedding(26, 24, padding_idx=0), nn.GRU(24, 48, batch_first=True), nn.Linear(48, 26)

    def forward(self, ids):
        logits = self.out(self.rnn(self.emb(ids[:, :-1]))[0]).transpose(1, 2)
        if HEALTHY:
            return nn.functional.cross_entropy(logits, ids[:, 1:], ignore_index=self.ignore_index)
        return nn.functional.cross_entropy(logits, ids[:, 1:])


model = LM()
opt = torch.optim.Adam(model.parameters(), lr=3e-3)
for step in range(120):
    ids = torch.cumsum(torch.randint(1, 3, (32, 20)), 1) % 25 + 1
    n = torch.randint(5, 11, (32, 1))
    ids = ids * (torch.arange(20) < n)
    loss = model(ids)
    opt.zero_grad()
    loss.backward()
    opt.step()
print(f"loss {loss.item():.4f} padding among the targets {(ids[:, 1:] == 0).float().mean():.2f}")
