"""LSTM with packed sequences, truncated BPTT with detached states, tied output weights, clipping by value.

Source: https://github.com/pytorch/examples (word_language_model)
"""
# PRELUDE
class LM(nn.Module):
    def __init__(self):
        super().__init__()
        self.e = nn.Embedding(20, 12)
        self.r = nn.LSTM(12, 12, 2, dropout=0.3, batch_first=True, bidirectional=False)
        self.o = nn.Linear(12, 20)
        self.o.weight = self.e.weight
    def forward(self, x, lengths, hc=None):
        p = nn.utils.rnn.pack_padded_sequence(self.e(x), lengths, batch_first=True, enforce_sorted=False)
        p, hc = self.r(p, hc)
        y, n = nn.utils.rnn.pad_packed_sequence(p, batch_first=True)
        return self.o(y), hc
torch.manual_seed(1)
m = LM(); W(m)
opt = torch.optim.RMSprop(m.parameters(), lr=1e-2)
hc = None
for s in range(6):
    x = torch.randint(0, 20, (3, 7))
    out, hc = m(x, torch.tensor([7, 5, 6]), hc)
    hc = tuple(h.detach() for h in hc)
    loss = F.cross_entropy(out.flatten(0, 1), x.flatten())
    opt.zero_grad(); loss.backward()
    nn.utils.clip_grad_value_(m.parameters(), 0.1)
    opt.step()
    print(float(loss.detach()).hex(), H(hc))
print(M(m), m.o.weight is m.e.weight, R())
