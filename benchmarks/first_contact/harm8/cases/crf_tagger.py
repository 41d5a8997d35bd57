# what: a BiLSTM-CRF by torchcrf with packed sequences; partition function over masked scores; viterbi; -inf transitions set by hand
# benign: yes
# PRELUDE
from torchcrf import CRF
class Tag(nn.Module):
    def __init__(self): super().__init__(); self.e = nn.Embedding(20, 8, padding_idx=0); self.l = nn.LSTM(8, 8, bidirectional=True, batch_first=True); self.o = nn.Linear(16, 4); self.crf = CRF(4, batch_first=True)
    def em(self, x, n): h = nn.utils.rnn.pack_padded_sequence(self.e(x), n, batch_first=True, enforce_sorted=False); h, _ = self.l(h); return self.o(nn.utils.rnn.pad_packed_sequence(h, batch_first=True)[0])
    def forward(self, x, n, y, k): return -self.crf(self.em(x, n), y, mask=k, reduction="mean")
m = Tag(); W(m)
with torch.no_grad(): m.crf.start_transitions[3] = -float("inf"); m.crf.transitions[0, 3] = -10000.
opt = torch.optim.SGD([p for n, p in m.named_parameters() if "crf.start" not in n], lr=.1)
for s in range(4):
    g = torch.Generator().manual_seed(s); n = torch.tensor([7, 4, 2]); x = torch.randint(1, 20, (3, 7), generator=g); y = torch.randint(0, 3, (3, 7), generator=g); k = torch.arange(7)[None] < n[:, None]; x = x * k
    opt.zero_grad(); l = m(x, n, y, k); l.backward(); opt.step(); print(float(l.detach()).hex())
    with torch.no_grad(): print(m.crf.decode(m.em(x, n), k))
print(M(m), R())
