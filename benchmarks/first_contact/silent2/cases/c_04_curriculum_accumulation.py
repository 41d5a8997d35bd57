"""Healthy, 420 optimizer steps: seq2seq GRU with attention, curriculum of growing lengths, 3 micro-batches, teacher forcing that decays, label smoothing. STEPS 420"""
import torch, torch.nn.functional as F
from torch import nn
torch.set_num_threads(1); torch.manual_seed(0)
class S2S(nn.Module):
    def __init__(self): super().__init__(); self.e = nn.Embedding(14, 24); self.enc = nn.GRU(24, 32, batch_first=True); self.dec = nn.GRUCell(24, 32); self.o = nn.Linear(64, 14)
    def forward(self, x, y, force):
        H, h = self.enc(self.e(x)); h = h[0]; t = torch.full((len(x),), 13); out = []
        for i in range(y.shape[1]):
            h = self.dec(self.e(t), h); w = (H @ h[:, :, None]).softmax(1); o = self.o(torch.cat([h, (w * H).sum(1)], 1)); out.append(o); t = y[:, i] if torch.rand(()) < force else o.argmax(1)
        return torch.stack(out, 1)
net = S2S(); opt = torch.optim.Adam(net.parameters(), 3e-3)
for step in range(420):
    n = 2 + step // 100; opt.zero_grad()
    for _ in range(3):
        x = torch.randint(0, 13, (12, n)); y = x.flip(1); loss = F.cross_entropy(net(x, y, max(0.3, 1 - step / 500)).reshape(-1, 14), y.reshape(-1), label_smoothing=0.1) / 3; loss.backward()
    opt.step()
print(f"STEPS 420 loss {loss * 3:.3f}")
