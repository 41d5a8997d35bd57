"""Transformer encoder with batch_first=True and the tutorial's positional encoding, pe[:x.size(0)]: positions are added along the batch.
Source: https://github.com/songyangco/GETNext/issues/2 (also pytorch/tutorials issue 1547)
Truth: a permutation of the tokens does not change the pooled output except for the sample's row.
Could a tool know: partly. One sample's output depends on its place in the batch.
"""
import sys, math, torch, torch.nn.functional as F
from torch import nn
HEALTHY = "--healthy" in sys.argv
torch.set_num_threads(1); torch.manual_seed(0)
class PE(nn.Module):
    def __init__(self, d, n=64):
        super().__init__(); pos = torch.arange(n).unsqueeze(1); div = torch.exp(torch.arange(0, d, 2) * (-math.log(10000.0) / d)); pe = torch.zeros(n, 1, d)
        pe[:, 0, 0::2], pe[:, 0, 1::2] = torch.sin(pos * div), torch.cos(pos * div); self.register_buffer("pe", pe)
    def forward(self, x): return x + (self.pe[:x.size(1)].transpose(0, 1) if HEALTHY else self.pe[:x.size(0)])
class Net(nn.Module):
    def __init__(self):
        super().__init__(); self.e, self.p = nn.Embedding(20, 32), PE(32); self.t = nn.TransformerEncoder(nn.TransformerEncoderLayer(32, 4, 64, 0.0, batch_first=True), 2, enable_nested_tensor=False); self.o = nn.Linear(32, 20)
    def forward(self, x): return self.o(self.t(self.p(self.e(x) * 32 ** 0.5)).mean(1))
net = Net(); opt = torch.optim.Adam(net.parameters(), 1e-3)
for step in range(160):
    x = torch.randint(0, 20, (32, 8)); y = x[:, 0]; loss = F.cross_entropy(net(x), y); opt.zero_grad(); loss.backward(); opt.step()
net.eval()
with torch.no_grad(): d = (net(x) - net(x.flip(1))).abs().max()
print(f"TRUTH reversing the tokens changes the output by {d:.4f}; loss {loss:.3f}")
