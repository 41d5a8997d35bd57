# opts: --check again:every=1
# truth: healthy (pytorch/examples word_language_model: LSTM with state carried over, packed GRU, dropout, SGD nesterov)
import flips as C, torch
from torch import nn
from torch.nn.utils.rnn import pack_padded_sequence as pack, pad_packed_sequence as pad
class Net(nn.Module):
    def __init__(s): super().__init__(); s.e, s.l, s.g, s.d = nn.Embedding(30, 16), nn.LSTM(16, 16, 2, dropout=0.3, batch_first=True), nn.GRU(16, 16, batch_first=True, bidirectional=True), nn.Linear(32, 30)
    def forward(s, x, n, h):
        y, h = s.l(s.e(x), h); y, _ = pad(s.g(pack(y, n, batch_first=True, enforce_sorted=False))[0], batch_first=True, total_length=x.shape[1]); return s.d(y), h
torch.manual_seed(0); m = Net(); o = torch.optim.SGD(m.parameters(), 0.1, momentum=0.9, nesterov=True); h = None
for C.STEP in range(7):
    x = torch.randint(0, 30, (3, 9)); h = None if h is None else tuple(t.detach() for t in h)
    y, h = m(x, torch.tensor([9, 5, 7]), h); nn.functional.cross_entropy(y.flatten(0, 1), x.flatten()).backward(); nn.utils.clip_grad_value_(m.parameters(), 0.5); o.step(); o.zero_grad()
C.finish(m, o, h)
