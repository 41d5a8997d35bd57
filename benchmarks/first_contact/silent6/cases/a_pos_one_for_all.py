"""From DiffPoseTalk/DiffPoseTalk issue 20.
Wrong: x + self.pe[:, x.shape[1], :] instead of [:, :x.shape[1], :]: all positions get the encoding of one.
Could know: no (a constant vector is added, as a bias is).
"""
import sys, math, torch, torch.nn as nn, torch.nn.functional as F
H = "--healthy" in sys.argv
torch.manual_seed(0); torch.set_num_threads(1)
class PE(nn.Module):
    def __init__(self, d, n=100):
        super().__init__(); pe = torch.zeros(n, d); p = torch.arange(n).unsqueeze(1).float(); k = torch.exp(torch.arange(0, d, 2).float() * (-math.log(10000.) / d)); pe[:, 0::2] = torch.sin(p * k); pe[:, 1::2] = torch.cos(p * k); self.register_buffer("pe", pe.unsqueeze(0))
    def forward(self, x): return x + (self.pe[:, :x.shape[1], :] if H else self.pe[:, x.shape[1], :].unsqueeze(1))
class Dec(nn.Module):
    def __init__(self): super().__init__(); self.i = nn.Linear(4, 32); self.pe = PE(32); self.enc = nn.TransformerEncoderLayer(32, 4, 64, 0.0, batch_first=True); self.o = nn.Linear(32, 3)
    def forward(self, x): return self.o(self.enc(self.pe(self.i(x))))
m = Dec(); opt = torch.optim.AdamW(m.parameters(), 2e-3)
for step in range(150):
    x = torch.randn(32, 12, 4); y = x.flip(1)[..., :3]; loss = F.mse_loss(m(x), y); opt.zero_grad(); loss.backward(); opt.step()
    if step % 25 == 0: print(step, round(loss.item(), 4))
with torch.no_grad(): print("check: largest difference of what is added at two positions", (m.pe(torch.zeros(1, 12, 32))[0].diff(dim=0)).abs().max().item(), "loss", loss.item())
