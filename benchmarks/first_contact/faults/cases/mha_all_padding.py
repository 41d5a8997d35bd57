"""nn.TransformerEncoderLayer's attention with need_weights and a key_padding_mask that masks a whole sample.
Source: pytorch/pytorch#26098, #41508, #24816."""
import sys
import torch
from torch import nn

CURED = "--cured" in sys.argv
torch.manual_seed(0)


class Pointer(nn.Module):
    """Attention pooling whose weights are also read."""

    def __init__(self):
        super().__init__()
        self.embed = nn.Embedding(30, 16, padding_idx=0)
        self.attn = nn.MultiheadAttention(16, 2, batch_first=True)
        self.query = nn.Parameter(torch.randn(1, 1, 16))
        self.out = nn.Linear(16, 1)

    def forward(self, ids):
        x = self.embed(ids)
        pad = ids == 0
        if CURED:
            pad = pad & ~pad.all(1, keepdim=True)
        pooled, weights = self.attn(self.query.expand(len(ids), 1, 16), x, x, key_padding_mask=pad, need_weights=True)  # FAULT
        return self.out(pooled).flatten(), weights


net = Pointer()
opt = torch.optim.Adam(net.parameters(), lr=1e-3)
for step in range(4):
    ids = torch.randint(1, 30, (5, 7))
    ids[:, 5:] = 0
    if step == 2:
        ids[4] = 0
    y, weights = net(ids)
    loss = (y - ids.float().mean(1)).pow(2).mean() + 0.01 * weights.pow(2).sum(-1).mean()
    opt.zero_grad()
    loss.backward()
    opt.step()
    print(step, loss.item())
