# opts: --check again:every=1
# truth: bit 1 (low) of one element of the embedding's weight gradient... poked in LSTM's output at step 4: docs say a low bit only asks
# source: pytorch/examples word_language_model; fault as arXiv 2102.11245
import flips as C, torch
from torch import nn
class Net(nn.Module):
    def __init__(s): super().__init__(); s.e, s.r, s.d = nn.Embedding(30, 16), nn.LSTM(16, 24, batch_first=True), nn.Linear(24, 30)
    def forward(s, x):
        h = s.r(s.e(x))[0]  # FAULT
        h = C.poke(h.contiguous(), 77, 1, what="LSTM output")
        return s.d(h)
torch.manual_seed(0); m = Net(); o = torch.optim.Adam(m.parameters(), 1e-3)
for C.STEP in range(8):
    x = torch.randint(0, 30, (4, 12)); nn.functional.cross_entropy(m(x[:, :-1]).flatten(0, 1), x[:, 1:].flatten()).backward(); o.step(); o.zero_grad()
C.finish(m, o)
