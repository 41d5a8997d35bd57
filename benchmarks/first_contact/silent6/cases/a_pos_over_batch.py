"""From songyangco/GETNext issue 2 (also cmu-l3/anlp-fall2025-code issue 1).
Wrong: batch-first data, but the positional encoding is sliced by x.size(0) and added along the batch: a sequence's tokens all get the same one.
Could know: partly (what is added is indexed by the batch; samples of one batch are treated differently by their place).
"""
import sys, math, torch, torch.nn as nn, torch.nn.functional as F
H = "--healthy" in sys.argv
torch.manual_seed(0); torch.set_num_threads(1)
class PositionalEncoding(nn.Module):
    def __init__(self, d, n=200):
        super().__init__(); pos = torch.arange(n).unsqueeze(1); div = torch.exp(torch.arange(0, d, 2) * (-math.log(10000.) / d)); pe = torch.zeros(n, 1, d); pe[:, 0, 0::2] = torch.sin(pos * div); pe[:, 0, 1::2] = torch.cos(pos * div); self.register_buffer("pe", pe)
    def forward(self, x): return x + (self.pe[:x.size(1)].transpose(0, 1) if H else self.pe[:x.size(0)])
class M(nn.Module):
    def __init__(self): super().__init__(); self.e = nn.Embedding(10, 32); self.pe = PositionalEncoding(32); self.enc = nn.TransformerEncoder(nn.TransformerEncoderLayer(32, 4, 64, 0.0, batch_first=True), 2, enable_nested_tensor=False); self.o = nn.Linear(32, 2)
    def forward(self, x): return self.o(self.enc(self.pe(self.e(x))).mean(1))
m = M(); opt = torch.optim.Adam(m.parameters(), 2e-3)
def batch(n):                # is the digit 3 before the digit 7?
    x = torch.randint(0, 3, (n, 10)); p = torch.stack([torch.randperm(10)[:2] for _ in range(n)]); x.scatter_(1, p[:, :1], 3); x.scatter_(1, p[:, 1:], 7); return x, (p[:, 0] < p[:, 1]).long()
for step in range(150):
    x, y = batch(64); loss = F.cross_entropy(m(x), y); opt.zero_grad(); loss.backward(); opt.step()
    if step % 25 == 0: print(step, round(loss.item(), 4))
with torch.no_grad(): x, y = batch(64); print("check: output changes when the batch is reversed by", (m(x) - m(x.flip(0)).flip(0)).abs().max().item(), "loss", F.cross_entropy(m(x), y).item())
