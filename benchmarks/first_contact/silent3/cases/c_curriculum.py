"""Healthy: a curriculum of copying sequences of growing length with a GRU encoder-decoder: the loss jumps with each stage, teacher forcing
is faded out by coin flips."""
import torch
from torch import nn

torch.manual_seed(0)
torch.set_num_threads(1)


class Seq2Seq(nn.Module):
    def __init__(self):
        super().__init__()
        self.emb, self.enc, self.dec, self.out = nn.Embedding(12, 24), nn.GRU(24, 48, batch_first=True), nn.GRUCell(24, 48), nn.Linear(48, 12)

    def forward(self, x, force):
        _, h = self.enc(self.emb(x))
        h, tok, outs = h[0], torch.zeros(len(x), dtype=torch.long), []
        for t in range(x.shape[1]):
            h = self.dec(self.emb(tok), h)
            o = self.out(h)
            outs.append(o)
            tok = x[:, t] if torch.rand(()) < force else o.argmax(-1)
        return torch.stack(outs, 1)


model = Seq2Seq()
opt = torch.optim.Adam(model.parameters(), lr=4e-3)
for step in range(450):
    n = 2 + step // 110
    x = torch.randint(1, 12, (48, n))
    loss = nn.functional.cross_entropy(model(x, max(0.3, 1 - step / 400)).flatten(0, 1), x.flatten())
    opt.zero_grad()
    loss.backward()
    nn.utils.clip_grad_norm_(model.parameters(), 1.0)
    opt.step()
print(f"loss {loss.item():.3f} at length {n}")
